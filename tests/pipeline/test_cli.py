"""The command ``cosyvoice`` where it can't do what it is asked: one line, and no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosyvoice_runtime.pipeline.cli import main


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]):
    """``refusal(*arguments)`` is the line that a command ends with."""

    def refusal(*arguments: object) -> str:
        assert main([str(argument) for argument in arguments]) == 1
        output, errors = capsys.readouterr()
        assert output == ""
        assert errors.startswith("cosyvoice: ")
        assert errors.count("\n") == 1
        return errors

    return refusal


@pytest.mark.parametrize("output", ["missing/speech.wav", "speech.mp3"])
def test_output_is_checked_before_anything_is_loaded(refusal, tmp_path: Path, output: str) -> None:
    target = tmp_path / output
    assert str(target) in refusal("speak", "--checkpoint", "nowhere", "Hello.", "-o", target)


def test_unknown_voice_is_refused_with_the_speakers_of_the_checkpoint(
    refusal, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    voice = ["--voices", tmp_path / "voices", "--voice", "nobody", "-o", tmp_path / "speech.wav"]
    said = refusal("speak", "--checkpoint", tiny_checkpoint, "Hello.", *voice)
    assert "voice: 'nobody' is not accepted; expected a key or the name default" in said


@pytest.mark.parametrize("text", [[], ["--reference-text", "Words."]])
def test_missing_reference_is_named(refusal, tiny_checkpoint: Path, tmp_path: Path, text: list[str]) -> None:
    reference = ["--reference", tmp_path / "missing.wav", *text, "-o", tmp_path / "speech.wav"]
    assert "missing.wav" in refusal("speak", "--checkpoint", tiny_checkpoint, "Hello.", *reference)


def test_voices_in_a_file_are_refused(refusal, tiny_checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "voices").write_text("in the way")
    said = refusal("voices", "--checkpoint", tiny_checkpoint, "--voices", tmp_path / "voices")
    assert "the directory of the voices can't be used" in said
