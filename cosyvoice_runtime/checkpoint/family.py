"""The families of checkpoints: how a directory of each is told, and what its networks' sizes do not say.

The sizes are a :class:`~cosyvoice_runtime.checkpoint.config.ModelConfig`, whose parts have classes of the
family's own; the class of a part's configuration picks its network.
"""

from __future__ import annotations

from dataclasses import dataclass

from cosyvoice_runtime.checkpoint.special_tokens import COSYVOICE3_TOKENS, SPECIAL_TOKENS


@dataclass(frozen=True)
class Family:
    """What the checkpoints of a family have in common.

    Attributes:
        name: for the command line and messages.
        config_file: by which a directory is told to be of the family.
        speech_tokenizer: file of the ONNX speech tokenizer.
        special_tokens: of the text tokenizer, in the order of their ids.
        mel_high_hz: upper edge of the filters of the prompt's mel.
        needs_end_of_prompt: every prompt of the speech LM must hold ``<|endofprompt|>``.
        silent_tokens: speech codes without sound, of which only the first few of a run are spoken.
    """

    name: str
    config_file: str
    speech_tokenizer: str
    special_tokens: tuple[str, ...]
    mel_high_hz: float
    needs_end_of_prompt: bool
    silent_tokens: frozenset[int]


COSYVOICE2 = Family(
    name="cosyvoice2",
    config_file="cosyvoice2.yaml",
    speech_tokenizer="speech_tokenizer_v2.onnx",
    special_tokens=SPECIAL_TOKENS,
    mel_high_hz=8000.0,
    needs_end_of_prompt=False,
    silent_tokens=frozenset(),
)
COSYVOICE3 = Family(
    name="cosyvoice3",
    config_file="cosyvoice3.yaml",
    speech_tokenizer="speech_tokenizer_v3.onnx",
    special_tokens=COSYVOICE3_TOKENS,
    mel_high_hz=12_000.0,
    needs_end_of_prompt=True,
    silent_tokens=frozenset({1, 2, 28, 29, 55, 248, 494, 2241, 2242, 2322, 2323}),
)
FAMILIES = (COSYVOICE2, COSYVOICE3)
