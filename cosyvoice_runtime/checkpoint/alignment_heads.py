"""The file ``alignment_heads.json`` beside a checkpoint: which heads of its speech LM follow the text."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cosyvoice_runtime.checkpoint.checksums import read_checksums, sha256_of
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.json_file import read_json
from cosyvoice_runtime.checkpoint.layout import ALIGNMENT_HEADS, Layout
from cosyvoice_runtime.errors import CheckpointError

COMMAND = "python -m cosyvoice_runtime.alignment calibrate"
KEYS = {"heads", "lead_rows", "lead_per_pace", "rows_per_letter", "llm_sha256"}
MOST_LEAD = 25.0
"""A second: no head looks further ahead and still tells which token is spoken."""
MOST_PER_LETTER = 25.0
PACE_LETTERS = 20.0
"""Weight of the usual pace against what has been heard of an utterance, in letters."""


@dataclass(frozen=True)
class AlignmentHeads:
    """Content of the file.

    Attributes:
        heads: layer and head of each; the mean of their attention is followed.
        lead_rows: rows, one for each speech token, by which they look ahead of speech at the usual pace.
        lead_per_pace: how much further they look for each row that a letter lasts longer than usual.
        rows_per_letter: how many a letter lasts at the usual pace; a text token lasts one row more.
        llm_sha256: of the weights of the speech LM, ``llm.pt`` or ``llm.safetensors``.
    """

    heads: tuple[tuple[int, int], ...]
    lead_rows: float
    lead_per_pace: float
    rows_per_letter: float
    llm_sha256: str

    @classmethod
    def of(cls, layout: Layout, config: SpeechLMConfig) -> AlignmentHeads | None:
        """The heads of a checkpoint; None without the file.

        Raises:
            CheckpointError: the file is damaged, or was made for other weights.
        """
        path = layout.alignment_heads
        if path is None:
            return None
        content = read_json(path)
        problem = _problem(content, config)
        if problem:
            raise CheckpointError(f"{path}: {problem}")
        heads = tuple((layer, head) for layer, head in content["heads"])
        found = cls(**{**content, "heads": heads})
        if found.llm_sha256 != llm_sha256(layout):
            raise CheckpointError(
                f"{path} was made for other weights of the speech LM; write it anew: "
                f"{COMMAND} {layout.directory}"
            )
        return found

    def lead(self, rows: float, letters: float) -> float:
        """Rows by which they look ahead in an utterance.

        Args:
            rows: how much longer its text tokens have lasted than one row each.
            letters: of these tokens.
        """
        usual = self.rows_per_letter
        pace = (rows + PACE_LETTERS * usual) / (letters + PACE_LETTERS)
        return min(max(self.lead_rows + self.lead_per_pace * (pace - usual), -MOST_LEAD), MOST_LEAD)

    def write(self, directory: Path) -> Path:
        """Write the file into a checkpoint's directory; returns its path."""
        path = directory / ALIGNMENT_HEADS
        path.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")
        return path


def llm_sha256(layout: Layout) -> str:
    """SHA-256 of the speech LM's weights: that of the list ``SHA256SUMS``, which a reader holds the file
    against, else of the file."""
    path = layout.weights("llm")
    return read_checksums(layout.directory).get(path.name) or sha256_of(path)


def _problem(content: dict[str, Any], config: SpeechLMConfig) -> str | None:
    if content.keys() != KEYS:
        return f"keys: {sorted(content)}; expected {sorted(KEYS)}"
    if not _are_heads(content["heads"], config):
        limit = (
            f"a layer from 0 to {config.num_layers - 1} and a head from 0 to {config.num_heads - 1} of each"
        )
        return f"heads: {content['heads']}; expected {limit}, one at least"
    for name, most in (
        ("lead_rows", MOST_LEAD),
        ("lead_per_pace", MOST_LEAD),
        ("rows_per_letter", MOST_PER_LETTER),
    ):
        value = content[name]
        if not isinstance(value, int | float) or isinstance(value, bool) or not -most <= value <= most:
            return f"{name}: {value!r}; expected a number from {-most} to {most}"
    if content["rows_per_letter"] <= 0:
        return f"rows_per_letter: {content['rows_per_letter']}; expected a number above 0"
    return None if isinstance(content["llm_sha256"], str) else "llm_sha256: expected a string"


def _are_heads(heads: Any, config: SpeechLMConfig) -> bool:
    return isinstance(heads, list) and bool(heads) and all(_is_head(pair, config) for pair in heads)


def _is_head(pair: Any, config: SpeechLMConfig) -> bool:
    if not (isinstance(pair, list) and len(pair) == 2 and all(type(number) is int for number in pair)):
        return False
    layer, head = pair
    return 0 <= layer < config.num_layers and 0 <= head < config.num_heads
