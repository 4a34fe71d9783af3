"""``cosyvoice read`` shows what would be spoken, and answers each line of a pipe."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from cosyvoice_runtime.local.cli import main


def test_each_segment_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", "Meet at 9:30PM.", "--language", "en"]) == 0
    assert capsys.readouterr().out == "Meet at nine thirty PM.\n"


def test_pauses_voices_and_paces_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    text = "Wait.[pause:0.5s] <speed ratio='1.5'/>Now 3.<break time='1s'/>"
    assert main(["read", text]) == 0
    assert capsys.readouterr().out == "Wait.\n(0.5 s)\n(1.5 times as fast) Now three.\n(1 s)\n"
    assert main(["read", "<voice name='anna'>Hi</voice> there", "--markup", "ssml"]) == 0
    assert capsys.readouterr().out == "(anna) Hi.\nthere.\n"


def test_long_text_is_split_and_a_file_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "long.txt"
    file.write_text("The train leaves from platform four. " * 20, encoding="utf-8")
    assert main(["read", "--file", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 2
    assert " ".join(lines) == file.read_text(encoding="utf-8").strip()


def test_pipe_is_read_with_a_lexicon_and_a_checkpoints_tokenizer(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lexicon = tmp_path / "words.txt"
    lexicon.write_text("nginx\tengine x\n", encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.StringIO("Run nginx 2 times."))
    assert main(["read", "-", "--checkpoint", str(tiny_checkpoint), "--lexicon", str(lexicon)]) == 0
    assert capsys.readouterr().out == "Run engine x two times.\n"


def test_each_line_of_json_is_answered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [
        {"text": "5 km"},
        {"text": "价格5元", "language": "zh"},
        {"text": ""},
        ["no object"],
        {"text": 5},
    ]
    lines = [*map(json.dumps, asked), "no json", json.dumps({"text": "a", "language": "nonsense!"})]
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    assert main(["read", "--jsonl"]) == 0
    first, second, *errors = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {"segments": ["five kilometers."]}
    assert "".join(second["segments"]).startswith("价格五元")
    assert len(errors) == 5
    assert all(list(error) == ["error"] for error in errors)


def test_text_that_holds_nothing_to_speak_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", "..."]) == 1
    assert "target_text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("markup", "line"), [("auto", "Take three pills.\n"), ("plain", "Take **three** pills.\n")]
)
def test_markup_is_read_unless_the_text_is_plain(
    markup: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["read", "Take **3** pills.", "--markup", markup]) == 0
    assert capsys.readouterr().out == line


def test_emoji_and_code_are_told_where_options_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    text = "Bravo, that is it 🎉\n```py\nx = 1\n```"
    assert main(["read", text, "--emoji", "named", "--code-blocks", "announced"]) == 0
    assert capsys.readouterr().out == "Bravo, that is it, party popper. Here is code in Python.\n"
