"""Places in a text as it came, by those in what is visible of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.speakable import visible
from cosyvoice_runtime.text.places import places

SHY, DOTS = "\u00ad", "\u0308"


@given(st.text(alphabet=f"ab {SHY}{DOTS}\u200b\ufeff\r\n。", max_size=60), st.integers(0, 6))
def test_place_is_the_first_behind_which_so_much_is_visible(text, times):
    text = text + ("word " * 100 + text) * times
    shown = visible(text)
    place = places(text, shown, visible)
    for count in {0, len(shown) // 3, len(shown) // 2, len(shown)}:
        found = place(count)
        assert len(visible(text[:found])) >= count or found == len(text)
        assert found == 0 or len(visible(text[: found - 1])) < count


@pytest.mark.parametrize("words", ["a word ", "词句。"])
def test_little_of_a_long_line_is_looked_at(words):
    text = "\ufeff" + words * 10_000
    looked_at: list[int] = []

    def noted(part: str) -> str:
        looked_at.append(len(part))
        return visible(part)

    place = places(text, visible(text), noted)
    found = [place(count) for count in range(0, 30_000, 500)]
    assert found == [0, *range(501, 30_001, 500)]
    assert max(looked_at) <= 256
