"""Written forms are read as the cases in ``cases`` say: a share of each file at least, which may only grow.

A line has language, kind, written and spoken form, with tabs between. In files of what users write the
expected words occur in what is spoken; in others all words agree. Marked-up text goes the whole way to its
segments. Case, punctuation, hyphens and the usual
variants of a number's words count as equal, for conventions differ.
"""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest
from small_tokenizer import WordCounter

from cosyvoice_runtime.text.frontend import TextFrontEnd
from cosyvoice_runtime.text.normalise import Normaliser

CASES = Path(__file__).parent / "cases"
LEAST = {
    "nemo_de": 85,
    "nemo_en": 86,
    "nemo_es": 87,
    "nemo_fr": 88,
    "nemo_it": 80,
    "nemo_ja": 98,
    "nemo_ko": 91,
    "own_de": 100,
    "own_en": 100,
    "own_es": 100,
    "own_fr": 100,
    "own_it": 100,
    "own_ja": 100,
    "own_ko": 100,
    "own_markup": 100,
    "own_pt": 100,
    "own_ru": 100,
    "own_zh": 100,
    "users_en": 91,
    "users_ja": 100,
    "users_zh": 95,
    "wetext_en": 86,
    "wetext_ja": 91,
    "wetext_zh": 98,
}
"""Percent of each file that must be read right."""
EAST_ASIAN = ("zh", "ja", "ko")
VARIANTS = str.maketrans({"两": "二", "幺": "一", "〇": "零"})


def cases(name: str) -> list[list[str]]:
    lines = (CASES / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
    return [line.replace("\\n", "\n").split("\t") for line in lines if line and not line.startswith("#")]


def plain(text: str, language: str) -> str:
    """A text without what may differ."""
    text = unicodedata.normalize("NFKC", text).lower()
    text = re.sub(r"\((now|also)[^)]*\)", "", text)
    if language in EAST_ASIAN:
        text = re.sub(r"[\W_]", "", text)
        return text.translate(VARIANTS) if language == "zh" else text
    text = re.sub(r"[^\w']+", " ", text)
    text = re.sub(r"\b(and|the|of)\b", " ", text)
    return " ".join(re.sub(r"\b(o|oh)\b", "zero", text).split())


def is_right(expected: str, spoken: str, language: str, part: bool) -> bool:
    """Whether a text is spoken as expected; ``no x, no y`` says what must not occur."""
    got = plain(spoken, language)
    if not part:
        return plain(expected, language) == got
    if expected.startswith("no "):
        return not any(plain(word.removeprefix("no "), language) in got for word in expected.split(", "))
    return plain(expected, language) in got


@pytest.mark.parametrize("name", sorted(LEAST))
def test_share_of_a_file_is_read_right(name: str, normalise: Normaliser) -> None:
    wrong = []
    listed = cases(name)
    front_end = TextFrontEnd(WordCounter())
    for language, _, written, spoken in listed:
        if name.endswith("markup"):
            got = "".join(front_end.segments(written, language))
        else:
            got = normalise(written, language)
        if not is_right(spoken, got, language, name.startswith("users")):
            wrong.append(f"{written} | {spoken} | {got}")
    right = 100 * (len(listed) - len(wrong)) / len(listed)
    assert right >= LEAST[name], "\n".join(wrong)


def test_every_file_has_a_share() -> None:
    assert {path.stem for path in CASES.glob("*.tsv")} == LEAST.keys()
