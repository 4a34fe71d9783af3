"""What the contract says of how answers sound, of an open loop against a front around a fake and alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="needs the environment of scripts/environment.py --test")
pytest.importorskip("av", reason="needs the environment of scripts/environment.py --test")

import contract
from cosyvoice_client import AudioChunk
from cosyvoice_front import spoken
from fake_upstream import FakeUpstream
from front_server import running_front
from measuring.contract_figures import contract_table, legend
from measuring.front_speech import FIRST_SAMPLES, HttpPart
from measuring.hearing import Hearing, Recording, chosen
from measuring.likeness import SpeakerLikeness

DEMO_VOICE = Path(__file__).parents[2] / "demo_voice"
EMBEDDER, REFERENCE = DEMO_VOICE / "campplus.onnx", DEMO_VOICE / "reference.flac"
RATE = 24_000
TEXT = "One, two three four."


def buzz(level, seconds):
    """A square wave of this root mean square."""
    return np.tile([level, -level], round(seconds * RATE / 2)).astype(np.float32)


QUIET_THEN_LOUD = (buzz(0.1, 3.0), buzz(0.2, 3.0))
"""Chunks of which a client reads each in several parts."""


@pytest.fixture
def ears(tmp_path, monkeypatch):
    """A recogniser that misses one word of four in what lasts six seconds at 16 kHz."""
    (tmp_path / "other_ears.py").write_text(
        "class Ears:\n    def __call__(self, samples):\n"
        "        return 'ONE two four' if len(samples) == 96_000 else ''\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return "other_ears:Ears"


def run(folder, *arguments):
    (folder / "meta.lst").write_text(f"a|||{TEXT}\n")
    line = ["--texts", folder / "meta.lst", "--output-dir", folder, "--warmup", "0", "--seconds", "0.5"]
    status = contract.main(list(map(str, [*line, "--rates", "20", "--seeds", "2", *arguments])))
    path = folder / "results.json"
    return status, json.loads(path.read_text()) if path.exists() else None


def test_row_says_words_speaker_and_seams_of_the_answers_that_were_chosen(tmp_path, ears):
    asked = ["--hear", "3", "--recogniser", ears, "--embedder", EMBEDDER, "--reference", REFERENCE]
    with running_front(FakeUpstream(QUIET_THEN_LOUD)) as front:
        status, report = run(tmp_path, "--front", front.url, *asked)
    assert status == 0
    [row] = report["rows"]
    assert [each["heard"]["answers"] for each in row["runs"]] == [3, 3]
    heard = row["figures"]["heard"]
    assert heard["answers"] == heard["word_errors"]["sentences"] == 6
    assert heard["word_errors"]["mean"] == heard["word_errors"]["corpus"] == 25.0
    assert heard["seams"]["joins"] == 6  # However many parts a chunk came in.
    assert heard["seams"]["at_joins_db"] == pytest.approx(6.02, abs=0.05)
    assert heard["seams"]["elsewhere_db"] == pytest.approx(0, abs=0.01)
    speakers = SpeakerLikeness(EMBEDDER)
    embedding = speakers.embedding(np.concatenate(QUIET_THEN_LOUD), RATE)
    cosine = float(embedding @ speakers.of_file(REFERENCE))
    assert heard["likeness"] == pytest.approx({"mean": cosine, "lowest": cosine}, abs=1e-3)
    table = (tmp_path / "results.md").read_text()
    assert "| heard | WER % | likeness mean / lowest | seam dB joins / elsewhere |" in table
    assert f"| 6 | 25.0 ± 0.0 | {cosine:.3f} / {cosine:.3f} | 6.0 ± 0.0 / 0.0 |" in table
    assert "Seams are" in table


def test_columns_that_nobody_asked_for_are_absent(tmp_path):
    with running_front(FakeUpstream(QUIET_THEN_LOUD)) as front:
        _, report = run(tmp_path, "--front", front.url, "--hear", "1", "--seeds", "1")
        table = (tmp_path / "results.md").read_text()
        assert report["rows"][0]["figures"]["heard"].keys() == {"answers", "seams"}
        assert "seam dB" in table
        assert "WER" not in table
        assert "likeness" not in table.lower()
        _, report = run(tmp_path, "--front", front.url, "--seeds", "1")
    assert "heard" not in report["rows"][0]["figures"]
    assert "seam" not in (tmp_path / "results.md").read_text()


def test_what_can_not_be_examined_is_said_before_anything_is_asked(tmp_path, ears, capsys):
    unreachable = ["--front", "http://127.0.0.1:1", "--hear", "1"]
    for arguments, told in (
        (["--recogniser", "nowhere:Ears"], "recogniser nowhere:Ears"),
        (["--recogniser", ears, "--language", "French"], "language French: "),
        (["--recogniser", ears, "--language", "Klingon"], "language: "),
        (["--embedder", "no.onnx", "--reference", REFERENCE], "embedder no.onnx"),
        (["--embedder", EMBEDDER, "--reference", "no.wav"], "no.wav"),
    ):
        assert run(tmp_path, *unreachable, *arguments) == (2, None)
        assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--hear", "-1"],
        ["--recogniser", "a:B"],
        ["--hear", "1", "--embedder", "x"],
        ["--hear", "1", "--reference", "x"],
    ],
)
def test_options_that_say_nothing_together_are_refused(arguments):
    with pytest.raises(SystemExit, match="2"):
        contract.parse(["--front", "x", *arguments])


def test_requests_of_the_warm_up_are_not_chosen():
    due = [0.5 * number for number in range(100)]
    assert chosen(due, 40.0, 8, 0) <= set(due[80:])
    assert len(chosen(due, 40.0, 8, 0)) == 8
    assert chosen(due, 40.0, 8, 0) == chosen(due, 40.0, 8, 0) != chosen(due, 40.0, 8, 1)
    assert chosen(due, 40.0, 50, 0) == set(due[80:])
    assert chosen(due, 0.0, 0, 0) == frozenset()


def test_joins_are_where_chunks_of_the_server_begin():
    four = np.zeros(4, np.float32)
    grpc = Recording(TEXT, [AudioChunk(four, 0.0), AudioChunk(four[:0], 0.0), AudioChunk(four, 0.0)])
    parts = [HttpPart(four, 0.0, ends=ends) for ends in (False, True, True)]
    assert (grpc.joins, Recording(TEXT, parts).joins) == ([4], [8])


def test_samples_that_the_front_sends_apart_are_no_chunk():
    assert FIRST_SAMPLES == spoken.FIRST_SAMPLES


def test_chinese_is_heard_in_characters():
    hearing = Hearing(lambda samples, rate: "今天天汽很好", "zh")
    heard = hearing.figures([Recording("今天天气很好。", [AudioChunk(buzz(0.1, 1.0), 0.0)])])
    assert heard["word_errors"]["mean"] == pytest.approx(100 / 6, abs=1e-3)


def test_row_whose_answers_all_failed_has_dashes():
    seams = {"joins": 0, "at_joins_db": None, "standard_error_db": None, "elsewhere_db": None}
    figures = {
        "actual_rate": 1.0, "requests": 1, "underrun_requests": 0, "underrun_s": 0.0, "first_byte_ms": None,
        "audible_ms": None, "latency_ms": None, "leading_silence_ms": None, "rtf": None, "in_flight": None,
        "refused": 1, "errors": {}, "inaudible": 0, "lag_ms": None, "client_cpu": 0.0,
    }  # fmt: skip
    rows = [
        {"wire": "gRPC", "rate": 1, "figures": figures | {"heard": heard}}
        for heard in (None, {"answers": 1, "seams": seams})
    ]
    failed, silent = contract_table(rows).splitlines()[-2:]
    assert failed.endswith("| 0.00 | - | - |")
    assert silent.endswith("| 0.00 | 1 | - / - |")
    assert "Seams are" in legend(rows)
    assert Hearing().figures([]) is None
