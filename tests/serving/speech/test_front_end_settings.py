"""What a deployment says about words: its lexicon, and whether readings are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families import COSYVOICE2, COSYVOICE3
from cosyvoice_runtime.serving.speech.model import front_end_of
from cosyvoice_runtime.settings import Machine, Settings


class Characters:
    def count(self, text: str) -> int:
        return len(text)


def settings(*changes: str):
    return (
        Settings.read([f"cosyvoice2.{change}" for change in changes]).resolved(Machine(2, False)).cosyvoice2
    )


def test_without_settings_characters_stay() -> None:
    assert front_end_of(settings(), Characters(), COSYVOICE3).segments("我在银行。") == ["我在银行。"]


def test_words_of_the_file_are_respelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "words.txt").write_text("重庆\t虫庆\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    read = settings("lexicon=words.txt")
    monkeypatch.chdir("/")
    assert front_end_of(read, Characters(), COSYVOICE2).segments("我在重庆。") == ["我在虫庆。"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"lexicon: .*words\.txt"):
        front_end_of(settings(f"lexicon={tmp_path}/words.txt"), Characters(), COSYVOICE2)


def test_words_without_an_instruction_get_the_usual_one_where_the_settings_say_so() -> None:
    with pytest.raises(InvalidInput, match="cosyvoice3 needs an instruction"):
        front_end_of(settings(), Characters(), COSYVOICE3).missing_instruction("target_text", "Hi.")
    adds = front_end_of(settings("add_instruction=true"), Characters(), COSYVOICE3)
    usual = COSYVOICE3.usual_instruction
    assert adds.missing_instruction("target_text", "Hi.") == usual
    assert adds.missing_instruction("reference_text", "Hi.", usual + "Ho.") == ""
    other = front_end_of(settings("add_instruction=true"), Characters(), COSYVOICE2)
    assert other.missing_instruction("target_text", "Hi.") == ""


def test_readings_are_told_to_cosyvoice3_alone() -> None:
    read = settings("polyphones=true")
    assert front_end_of(read, Characters(), COSYVOICE3).segments("我在银行。") == ["我在银[h][áng]。"]
    with pytest.raises(InvalidInput, match=r"polyphones: True .*cosyvoice2 reads no units"):
        front_end_of(read, Characters(), COSYVOICE2)


def test_a_block_of_code_is_announced_where_the_settings_say_so() -> None:
    text = "Try this:\n```python\nx = 1\n```\n"
    silent = front_end_of(settings(), Characters(), COSYVOICE2)
    assert silent.segments(text) == ["Try this:"]
    announcing = front_end_of(settings("code_blocks=announced"), Characters(), COSYVOICE2)
    assert announcing.segments(text) == ["Try this: Here is code in Python."]


def test_emoji_are_named_where_the_settings_say_so() -> None:
    assert front_end_of(settings(), Characters(), COSYVOICE2).segments("Bravo 🎉!") == ["Bravo!"]
    naming = front_end_of(settings("emoji=named"), Characters(), COSYVOICE2)
    assert naming.segments("Bravo 🎉!") == ["Bravo, party popper!"]
