from __future__ import annotations

import pytest

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.speakable import is_speakable
from cosyvoice_runtime.text.validate import MAX_TARGET_CHARACTERS, require_text


@pytest.mark.parametrize(
    "text",
    ["", " \n\t", "\u3000", "\x00", " \x1b\x7f", "\ud800", "a" * (MAX_TARGET_CHARACTERS + 1)],
)
def test_unspeakable_input_names_the_field(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        require_text("target_text", text)
    assert caught.value.field == "target_text"
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "text", ["a", "a\tb\r\nc", "a\x00b", "\x7fa", "👨‍👩‍👧 a", "a" * MAX_TARGET_CHARACTERS]
)
def test_ordinary_text_passes(text: str) -> None:
    require_text("target_text", text)


def test_speakable() -> None:
    assert is_speakable("[laughter]")
    assert is_speakable("。3")
    assert not is_speakable(" 。！ …$👍\u200d\n")
