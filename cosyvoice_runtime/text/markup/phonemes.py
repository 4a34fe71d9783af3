"""Units of pronunciation of CosyVoice3: ``<phoneme alphabet="pinyin" ph="ji3 yu3">``, ``alphabet="cmu"``."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families.tokens import ARPABET, PINYIN

_PARTS = frozenset(PINYIN.split())
_CONSONANTS = "b p m f d t n l g k h j q x zh ch sh r z c s y w"
_INITIALS = frozenset(_CONSONANTS.split())
_PHONES = frozenset(ARPABET.split())
_SYLLABLE = re.compile(r"([^\W\d_]+)\s?([0-5])?")
_BETWEEN = re.compile(r"[\s'’.,-]*")
_MARKS = ("", "\u0304", "\u0301", "\u030c", "\u0300", "")
"""The mark of each tone; none of the fifth, which is written 0, too."""
_BEARERS = (re.compile("[ae]"), re.compile("o"), re.compile("[iuü](?![iuü])"))
"""Find the vowel of a final that bears its tone, the first of them that finds one."""


def units(alphabet: str, ph: str, reads_units: bool) -> str:
    """The units that stand for a word whose pronunciation is written down.

    Args:
        alphabet: ``pinyin`` with tones as numbers or marks, or ``cmu``, or another name of either.
        ph: ``ji3 yu3`` or ``jǐ yǔ``, or ``R IY1 D``.
        reads_units: whether the speech LM does.

    Raises:
        InvalidInput: the alphabet is unknown, its syllables or phones are, or the family reads no units.
    """
    read = _ALPHABETS.get(alphabet.strip().lower())
    if read is None:
        raise InvalidInput("target_text", alphabet, f"alphabet of a phoneme: one of {', '.join(_ALPHABETS)}")
    if not reads_units:
        raise InvalidInput(
            "target_text",
            ph,
            "the speech LM of this checkpoint reads no units of pronunciation; respell the word by <sub>",
        )
    return read(ph)


def in_units(pinyin: str) -> str:
    """A syllable with its tone's mark in units, initial and final: ``háng`` -> ``[h][áng]``; a ValueError
    without them."""
    initial = 2 if pinyin.startswith(("zh", "ch", "sh")) else 1
    parts = [pinyin] if pinyin in _PARTS else [pinyin[:initial], pinyin[initial:]]
    if not _PARTS.issuperset(parts) or (len(parts) > 1 and (parts[0] not in _INITIALS)):
        raise ValueError(f"{pinyin} has no units of pronunciation")
    return "".join(f"[{part}]" for part in parts)


def _of_pinyin(ph: str) -> str:
    text = unicodedata.normalize("NFC", ph.strip().lower()).replace("u:", "ü")
    said, at = [], 0
    while at < len(text):
        found = _SYLLABLE.match(text, at)
        if not found:
            raise _refusal(ph, text[at:])
        said.append(_of_syllable(found[1], int(found[2] or 0), ph))
        between = _BETWEEN.match(text, found.end())
        at = between.end() if between else found.end()
    if not said:
        raise _refusal(ph, "")
    return "".join(said)


def _of_syllable(written: str, tone: int, ph: str) -> str:
    """A syllable in units; a tone of 0 leaves the mark that it has."""
    syllable = re.sub("^([jqxy])ü", r"\1u", written.replace("v", "ü"))
    syllable = re.sub("^([ln])[uü](?=[eè])", r"\1v", syllable)
    has_vowel = re.search("[aeiou]", unicodedata.normalize("NFD", syllable))
    if not (has_vowel or syllable == "r") or (tone and _is_marked(syllable)):
        raise _refusal(ph, written)
    try:
        return in_units(_marked(syllable, tone))
    except ValueError:
        raise _refusal(ph, written + (str(tone) if tone else "")) from None


def _is_marked(syllable: str) -> bool:
    return any(mark in unicodedata.normalize("NFD", syllable) for mark in filter(None, _MARKS))


def _marked(syllable: str, tone: int) -> str:
    """A syllable with the mark of its tone."""
    bearer = next(filter(None, (vowel.search(syllable) for vowel in _BEARERS)), None)
    if not tone or bearer is None:
        return syllable
    return unicodedata.normalize("NFC", syllable[: bearer.end()] + _MARKS[tone] + syllable[bearer.end() :])


def _refusal(ph: str, syllable: str) -> InvalidInput:
    limit = f"syllables of pinyin with their tones, such as ji3 yu3 or jǐ yǔ; {syllable!r} is none"
    return InvalidInput("target_text", ph, limit)


def _of_phones(ph: str) -> str:
    phones = re.split(r"[\s.-]+", ph.strip().upper())
    for phone in phones:
        if phone not in _PHONES:
            limit = f"phones of CMU's dictionary, such as R IY1 D; {phone!r} is none"
            raise InvalidInput("target_text", ph, limit)
    return "".join(f"[{phone}]" for phone in phones)


_PINYIN_NAMES = ("pinyin", "x-pinyin", "sapi")
_CMU_NAMES = ("cmu", "x-cmu", "cmu-arpabet", "arpabet", "x-arpabet")
_ALPHABETS: dict[str, Callable[[str], str]] = {
    **dict.fromkeys(_PINYIN_NAMES, _of_pinyin),
    **dict.fromkeys(_CMU_NAMES, _of_phones),
}
