"""Chinese text: the clean-up of spaces, brackets and marks that upstream does."""

from __future__ import annotations

import re
import unicodedata


def clean(text: str, following: str = "") -> str:
    """Spaces, brackets and marks as upstream leaves them.

    Args:
        following: first character after this part of the text, if there is one.
    """
    text = drop_blanks(re.sub("(?<![ \n\r\t])[ \n\r\t]*[\n\r\t][ \n\r\t]*", " ", text), following)
    text = text.replace("²", "平方").replace("³", "立方")
    # Upstream turns every dot into a full stop, even those of 3.14 and www.example.com.
    text = re.sub(r"(?<![0-9A-Za-z])\.|\.(?![0-9A-Za-z])", "。", text)
    return remove_brackets(text.replace(" - ", "，"))


def drop_blanks(text: str, following: str = "") -> str:
    """Spaces only where both neighbours are ASCII, or letters of another alphabet, and no spaces."""
    padded = f" {text}{following or ' '}"
    return "".join(
        character
        for index, character in enumerate(text, start=1)
        if character != " " or (_is_spaced(padded[index - 1]) and _is_spaced(padded[index + 1]))
    )


def remove_brackets(text: str) -> str:
    """Chinese brackets and backticks away, a long dash as a space."""
    return re.sub("[（）【】`]", "", text).replace("——", " ")


def end_commas(text: str) -> str:
    """A comma at the very end made a full stop."""
    return re.sub("[，,、]+$", "。", text)


def _is_spaced(character: str) -> bool:
    if character.isascii():
        return character != " "
    return character.isalpha() and unicodedata.east_asian_width(character) in ("N", "Na", "A")
