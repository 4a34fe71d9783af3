"""Words as they were sent, found in what is spoken for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.alignment.spoken_text import matched
from cosyvoice_runtime.alignment.words import WordReader


def said(sent: str, *texts: str) -> list[tuple[str, str]]:
    """Each word as sent and what says it."""
    reader = WordReader()
    words = reader.read(sent) + reader.finish()
    return [(each.word.text, texts[each.segment][each.start : each.end]) for each in matched(words, texts)]


def test_equal_words_say_themselves():
    assert said("Where did Anna go?", "Where did Anna go?") == [
        ("Where", "Where"), ("did", "did"), ("Anna", "Anna"), ("go?", "go?"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sent", "text", "expected"),
    [
        ("pay $5 now", "pay five dollars now", [("pay", "pay"), ("$5", "five dollars"), ("now", "now")]),
        ("Dr. Li – yes", "Doctor Li, yes", [("Dr.", "Doctor"), ("Li", "Li,"), ("–", ""), ("yes", "yes")]),
        ("room 12", "room twelve", [("room", "room"), ("12", "twelve")]),
        ("R&D ok", "R and D ok", [("R&D", "R and D"), ("ok", "ok")]),
        ("在1995年", "在一九九五年", [("在", "在"), ("1995", "一九九五"), ("年", "年")]),
        ("3 kg 20 cm", "three kilograms twenty centimetres",
         [("3", "three"), ("kg", "kilograms"), ("20", "twenty"), ("cm", "centimetres")]),
    ],
)  # fmt: skip
def test_word_that_normalisation_changed_has_all_that_is_said_for_it(sent, text, expected):
    assert said(sent, text) == expected


def test_words_of_several_segments():
    assert said("One two. Three four.", "One two.", " Three four.") == [
        ("One", "One"), ("two.", "two."), ("Three", "Three"), ("four.", "four."),
    ]  # fmt: skip


written = st.text(alphabet="ab 1$,.–你", max_size=30)


@given(written, st.lists(written, min_size=1, max_size=3))
def test_words_are_echoed_and_places_never_go_back(sent, texts):
    reader = WordReader()
    words = reader.read(sent) + reader.finish()
    found = matched(words, texts)
    assert [each.word for each in found] == words
    places = [(each.segment, place) for each in found for place in (each.start, each.end)]
    assert places == sorted(places)
    assert all(each.end <= len(texts[each.segment]) for each in found)
