"""Names that people and clients give languages, as tags of BCP 47."""

from __future__ import annotations

import re

from cosyvoice_runtime.errors import InvalidInput

AUTO = "auto"
_AUTOMATIC = frozenset({AUTO, "automatic", "auto-detect", "detect", "und", "mul", "multilingual"})
"""Names that clients send for a text of any language."""
NAMES = """
ar ara arabic العربية
bg bul bulgarian български
ca cat catalan català
cs ces cze czech čeština
da dan danish dansk
de deu ger german deutsch 德语
el ell gre greek ελληνικά
en eng english 英语 英文
es spa spanish castilian español 西班牙语
et est estonian eesti
eu eus baque basque euskara
fa fas per persian farsi فارسی
fi fin finnish suomi
fr fra fre french français 法语
gl glg galician galego
he heb hebrew עברית
hi hin hindi हिन्दी
hr hrv croatian hrvatski
hu hun hungarian magyar
hy hye arm armenian հայերեն
id ind indonesian bahasa-indonesia
it ita italian italiano 意大利语
ja jpn jp japanese 日本語 日语 日文
ko kor kr korean 한국어 韩语 韩文
lt lit lithuanian lietuvių
lv lav latvian latviešu
ms msa may malay bahasa-melayu
nb nob norwegian-bokmål bokmål
nl nld dut dutch flemish nederlands
no nor norwegian norsk
pl pol polish polski
pt por portuguese português 葡萄牙语
ro ron rum romanian română
ru rus russian русский 俄语
sk slk slo slovak slovenčina
sl slv slovenian slovene slovenščina
sr srp serbian српски
sv swe swedish svenska
sw swa swahili kiswahili
th tha thai ไทย
tl tgl fil tagalog filipino
tr tur turkish türkçe
uk ukr ukrainian українська
ur urd urdu اردو
vi vie vietnamese tiếng-việt
yue cantonese 粤语 粵語 广东话 廣東話
zh zho chi cmn cn chinese mandarin mandarin-chinese 中文 汉语 漢語 普通话 普通話 国语 國語
zh-Hans simplified-chinese chinese-simplified 简体中文
zh-Hant traditional-chinese chinese-traditional 繁體中文
"""
"""A line each: the tag, then codes of three letters (ISO 639-2), mistaken country codes, and names."""

_TAG = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_TAGS = {name: tag for tag, *names in map(str.split, NAMES.strip().splitlines()) for name in names}


def language_tag(language: str) -> str:
    """The tag of a language: ``English``, ``eng`` and ``en`` are ``en``, ``en_US.UTF-8`` is ``en-US``.

    Nothing is ``auto``, as are ``und`` and ``multilingual``. Tags are taken whichever language they name.

    Raises:
        InvalidInput: it is neither a tag nor a known name.
    """
    return _KNOWN.get(language) or _tag_of(language)


def _tag_of(language: str) -> str:
    if not language.strip():
        return AUTO
    asked = re.sub(r"[_\s()]+", "-", re.split("[.@]", language.strip())[0]).removesuffix("-")
    if asked.casefold() in _AUTOMATIC:
        return AUTO
    primary, dash, rest = asked.partition("-")
    tag = _TAGS.get(asked.casefold()) or _TAGS.get(primary.casefold(), primary) + dash + rest
    if not _TAG.fullmatch(tag):
        limit = "give auto, a language tag such as zh, en-US, ja, de, or a name such as English"
        raise InvalidInput("language", language, limit)
    return tag


_KNOWN = {name: _tag_of(name) for name in (AUTO, *_TAGS, *set(_TAGS.values()))}
"""The tags of names as they are mostly given, since each text is asked for its language several times."""
