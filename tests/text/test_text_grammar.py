"""Grammars by themselves read what the package around them does."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_runtime.text import grammar
from cosyvoice_runtime.text.grammar import Grammar

wetext = pytest.importorskip("wetext")

PARTS = {
    "ja": ["2024年5月17日", "10:30", "1,500円", "3.14", "50%", "1/2", "100km", "午後", "個", "は", "2", " "],
}

GRAMMARS: dict[str, Grammar] = {"ja": Grammar("ja")}


PACKAGES = {language: wetext.Normalizer(lang=language) for language in PARTS}


def by_package(language: str, expression: str) -> str:
    try:
        return str(PACKAGES[language].normalize(expression))
    except AssertionError:
        return expression


@pytest.mark.parametrize("language", sorted(PARTS))
@settings(max_examples=300)
@given(data=st.data())
def test_words_are_those_of_the_package(language: grammar.Language, data: st.DataObject) -> None:
    expression = "".join(
        data.draw(st.lists(st.sampled_from(PARTS[language]), min_size=1, max_size=6))
    ).strip()
    if any(map(str.isdigit, expression)):
        assert GRAMMARS[language](expression) == by_package(language, expression)


def test_an_expression_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    japanese = Grammar("ja")
    words = japanese("10:30")
    monkeypatch.setattr(japanese, "_read", lambda expression: pytest.fail(f"{expression} is read again"))
    assert japanese("10:30") == words == "十時三十分"


def test_text_without_numbers_reads_no_grammar_and_no_package() -> None:
    script = (
        "import sys; from cosyvoice_runtime.text.normalise import Normaliser; "
        "Normaliser()('你好，hello'); print({'wetext', 'kaldifst'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"
