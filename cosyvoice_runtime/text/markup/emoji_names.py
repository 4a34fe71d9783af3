"""Names of emoji in the languages that the package ``emoji`` has, in English for others."""

from __future__ import annotations

import re
from functools import cache
from itertools import groupby
from threading import Lock
from types import ModuleType

from cosyvoice_runtime.text.markup import silent

_UNNAMED = re.compile("[\ufe0e\ufe0f\u20e3\U0001f3fb-\U0001f3ff]")
"""Signs of how an emoji is shown, and shades of skin."""
_WIDE_LANGUAGES = {"zh": "，", "ja": "、"}
_LOADING = Lock()


def names(run: str, language: str) -> list[str]:
    """The names of the emoji of a run, once for several of the same; ornaments and arrows have none.

    Args:
        run: what stands close to each other.
        language: resolved language.
    """
    shown = _UNNAMED.sub("", run)
    if not silent.EMOJI.search(shown):
        return []
    package, known = _loaded(language)
    found = [each["emoji"] for each in package.emoji_list(shown) if silent.EMOJI.match(each["emoji"])]
    named = (package.EMOJI_DATA[each] for each, _ in groupby(found))
    between = _WIDE_LANGUAGES.get(known, " ")
    return [name.get(known, name["en"]).strip(":").replace("_", between) for name in named]


@cache
def _loaded(language: str) -> tuple[ModuleType, str]:
    """The package with the names of a language, imported at the first emoji: that takes 20 ms and 5 MB.

    The language is English where the package lacks the one that was asked for.
    """
    import emoji

    if language not in emoji.LANGUAGES:
        return emoji, "en"
    with _LOADING:
        emoji.config.load_language(language)
    return emoji, language
