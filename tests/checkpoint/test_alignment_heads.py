"""The file of the heads that follow the text."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.alignment_heads import AlignmentHeads, llm_sha256
from cosyvoice_runtime.errors import CheckpointError
from making import make_checkpoint

FILE = "alignment_heads.json"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = make_checkpoint(tmp_path / "made", "tiny", seed=4)
    (made / "SHA256SUMS").unlink()
    return Layout(made)


@pytest.fixture
def config(layout):
    return load_config(layout.directory).speech_lm


@pytest.fixture
def heads(layout) -> AlignmentHeads:
    return AlignmentHeads(((0, 1), (1, 0)), 1.25, 2.0, 1.5, llm_sha256(layout))


def test_file_is_read_as_it_was_written(layout, config, heads):
    assert AlignmentHeads.of(layout, config) is None
    heads.write(layout.directory)
    assert AlignmentHeads.of(layout, config) == heads


def test_other_weights_need_another_calibration(layout, config, heads):
    dataclasses.replace(heads, llm_sha256="0" * 64).write(layout.directory)
    with pytest.raises(CheckpointError, match=r"other weights.* cosyvoice_runtime\.alignment calibrate "):
        AlignmentHeads.of(layout, config)


def test_heads_look_further_ahead_of_a_slow_voice(heads):
    assert heads.lead(0, 0) == pytest.approx(1.25)
    assert heads.lead(1.5 * 60, 60) == pytest.approx(1.25)
    assert heads.lead(2.3 * 60, 60) == pytest.approx(1.25 + 2 * 0.8 * 60 / 80)
    assert heads.lead(1e6, 60) == 25


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"heads": []}, "heads: "),
        ({"heads": [[0, 99]]}, "heads: .* a head from 0 to 3 of each"),
        ({"heads": [[0, True]]}, "heads: "),
        ({"heads": [[0]]}, "heads: "),
        ({"lead_rows": "1"}, "lead_rows: '1'; expected a number from -25"),
        ({"lead_rows": 26}, "lead_rows: 26; expected"),
        ({"lead_per_pace": None}, "lead_per_pace: None; expected a number from -25"),
        ({"rows_per_letter": 0}, "rows_per_letter: 0; expected a number above 0"),
        ({"llm_sha256": 5}, "llm_sha256: expected a string"),
        ({"more": 1}, "keys: "),
    ],
)
def test_damaged_file_is_refused_by_name(layout, config, heads, change, problem):
    path = heads.write(layout.directory)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(CheckpointError, match=f"{FILE}: {problem}"):
        AlignmentHeads.of(layout, config)
