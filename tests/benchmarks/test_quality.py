"""The figures of seed-tts-eval for a small manifest, from what was heard and from what was spoken."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

pytest.importorskip("tritonclient.grpc", reason="needs the environment of scripts/environment.py")

import quality
from cosyvoice_client.sound_file import decode
from measuring.likeness import SpeakerLikeness

DEMO_VOICE = Path(__file__).parents[2] / "demo_voice"
EMBEDDER = DEMO_VOICE / "campplus.onnx"
REFERENCE = decode(DEMO_VOICE / "reference.flac", "reference", 30.0)
RATE = 24_000


@pytest.fixture
def manifest(tmp_path):
    """Two texts, spoken as the reference itself and as noise."""
    path = tmp_path / "meta.lst"
    prompt = DEMO_VOICE / "reference.flac"
    path.write_text(f"a|words|{prompt}|One, two three four.\nb.wav|words|{prompt}|Yes.\n")
    noise = np.random.default_rng(0).uniform(-0.3, 0.3, RATE)
    for name, samples, rate in (("a", REFERENCE.samples, REFERENCE.rate), ("b", noise, RATE)):
        soundfile.write(tmp_path / f"{name}.wav", samples, rate)
    return path


@pytest.fixture
def ears(tmp_path, monkeypatch):
    """A recogniser that hears a short sound otherwise than a long one."""
    (tmp_path / "some_ears.py").write_text(
        "class Ears:\n    def __call__(self, samples):\n"
        "        return 'ONE two three' if len(samples) > 20_000 else ''\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return "some_ears:Ears"


def run(manifest, *arguments):
    report = manifest.parent / "quality.json"
    line = ["--manifest", manifest, "--language", "en", "--json", report, *arguments]
    status = quality.main(list(map(str, line)))
    return status, json.loads(report.read_text()) if report.exists() else None


def test_what_was_heard_is_compared_with_the_texts(manifest, capsys):
    heard = manifest.parent / "heard.txt"
    heard.write_text("out/b.wav|\na|one TWO, four\n\n")
    status, report = run(manifest, "--hypotheses", heard)
    assert status == 0
    assert report["word_errors"]["mean"] == pytest.approx((25 + 100) / 2)
    assert report["word_errors"]["corpus"] == pytest.approx(100 * 2 / 5)
    assert [row["wrong"] for row in report["sentences"]] == [1, 1]
    assert "likeness" not in report
    assert "| 2 | 62.50 ± 37.50 | 40.00 |" in capsys.readouterr().out


def test_files_are_heard_and_their_speaker_is_compared(manifest, ears, capsys):
    folder = manifest.parent
    status, report = run(manifest, "--recogniser", ears, "--audio", folder, "--embedder", EMBEDDER)
    assert status == 0
    assert [(row["heard"], row["wrong"]) for row in report["sentences"]] == [("ONE two three", 1), ("", 1)]
    same, other = (row["likeness"] for row in report["sentences"])
    assert same == pytest.approx(1, abs=1e-3)
    assert other < 0.7
    assert report["likeness"] == {"mean": pytest.approx((same + other) / 2, abs=1e-4), "lowest": other}
    assert "| SIM | lowest |" in capsys.readouterr().out


def test_chinese_is_counted_in_characters(tmp_path, capsys):
    (tmp_path / "meta.lst").write_text("a|||今天天气很好。\n")
    (tmp_path / "heard.txt").write_text("a|今天天汽很好\n")
    _, report = run(tmp_path / "meta.lst", "--language", "zh", "--hypotheses", tmp_path / "heard.txt")
    assert report["word_errors"]["mean"] == pytest.approx(100 / 6, abs=1e-3)
    assert "CER" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("heard", "told"),
    [
        ("a|one\n", "1 utterances are missing, such as 'b'"),
        ("a|one\nb|yes\nc|no\n", "line 3: 'c' is there not in the manifest"),
        ("a|one\na|one\nb|yes\n", "line 2: 'a' is there a second time"),
        ("a one\n", "line 1: expected utt|text"),
    ],
)
def test_hypotheses_are_those_of_the_manifest(manifest, capsys, heard, told):
    path = manifest.parent / "heard.txt"
    path.write_text(heard)
    assert run(manifest, "--hypotheses", path) == (2, None)
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--hypotheses", "no.txt"], "hypotheses no.txt: "),
        (["--recogniser", "nowhere:Ears", "--audio", "."], "recogniser nowhere:Ears: "),
        (["--recogniser", "json", "--audio", "."], "recogniser json: expected MODULE:CLASS"),
        (["--recogniser", "json:Nobody", "--audio", "."], "recogniser json:Nobody: "),
        (["--embedder", "no.onnx", "--audio", "."], "embedder no.onnx: "),
        (["--embedder", EMBEDDER, "--audio", "nowhere"], "nowhere/a.wav"),
    ],
)
def test_what_is_missing_is_named(manifest, capsys, arguments, told):
    assert run(manifest, *arguments) == (2, None)
    assert told in capsys.readouterr().err


def test_utterance_without_a_reference_has_no_likeness(manifest, capsys):
    manifest.write_text("a|||One.\n")
    assert run(manifest, "--embedder", EMBEDDER, "--audio", manifest.parent) == (2, None)
    assert "utterance a: it has no prompt_wav" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["--embedder", "x"], ["--recogniser", "a:B"]])
def test_options_that_say_nothing_are_refused(manifest, arguments):
    with pytest.raises(SystemExit, match="2"):
        run(manifest, *arguments)


def test_sound_shorter_than_a_frame_has_an_embedding_of_unit_length():
    found = SpeakerLikeness(EMBEDDER).embedding(np.full(100, 0.1, np.float32), RATE)
    assert np.linalg.norm(found) == pytest.approx(1, abs=1e-5)
