"""Addresses of the web and of mail, hosts, files and machines: ``www.example.com/a``, ``bob@example.com``."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

_END_OF_HOST = (
    "com|org|net|gov|edu|io|ai|dev|app|info|co|uk|us|de|fr|es|it|jp|cn|kr|ru|br|eu|ch|nl|pl|ca|au|tv|me"
)
_URL = re.compile(
    r"(?<![A-Za-z0-9])(?i:https?|ftp|file|wss?)://[^\s<>\"'“”，。；！？、）】》\u3040-\u9fff\uac00-\ud7a3]{1,200}(?<![.,:;?!)\]}*_])"
    r"|(?<![A-Za-z0-9.@-])(?i:www)\.[A-Za-z0-9][^\s<>\"'“”，。；！？、）】》\u3040-\u9fff\uac00-\ud7a3]{1,200}(?<![.,:;?!)\]}*_])"
)
_MAIL = re.compile(
    r"(?<![\w.+-])[A-Za-z0-9][\w.!+-]{0,63}@(?![0-9]{1,4}(?:\.[0-9]+){1,2}[A-Za-z]{0,2}(?![\w.-]))[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,5}"
    r"(?:/[A-Za-z0-9_.-]{1,100}(?<![.-]))?",
    re.ASCII,
)
_HOST = re.compile(
    rf"(?<![A-Za-z0-9_@.-])(?:[A-Za-z0-9](?:[A-Za-z0-9-]{{0,61}}[A-Za-z0-9])?\.){{1,5}}(?:{_END_OF_HOST})"
    r"(?![A-Za-z0-9_@]|-[A-Za-z]|\.[A-Za-z])(?::[0-9]{2,5}(?![0-9]))?(?:/[A-Za-z0-9_./%#?=&~+-]{0,150}[A-Za-z0-9_/])?"
)
_ENDINGS = (
    "pdf|docx?|xlsx?|pptx?|txt|csv|tsv|md|html?|css|[jt]sx?|json|ya?ml|toml|xml|ini|cfg|conf|env|log|lock|py|"
    "ipynb|rb|rs|go|java|kt|swift|cpp|hpp|sh|bat|ps1|sql|db|zip|tar|gz|tgz|rar|exe|dmg|deb|rpm|iso|apk|jar|"
    "png|jpe?g|gif|svg|webp|bmp|mp[34]|wav|flac|mkv|mov|avi|webm|so|dll|bin|onnx|safetensors|gguf"
)
_DOCUMENT = re.compile(
    rf"(?<![\w./~\\@-])(?![A-Z][a-z]{{1,12}}\.js\b)(?:[A-Za-z0-9_-]{{1,40}}/){{0,8}}[A-Za-z0-9_-]{{1,64}}(?:\.[A-Za-z0-9_-]{{1,32}}){{0,3}}"
    rf"\.(?:{_ENDINGS})(?![\w/@-]|\.[A-Za-z0-9])",
    re.ASCII,
)
_MACHINE = re.compile(
    r"(?<![\w.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![\w]|\.[0-9])(?:(?::|/)[0-9]{1,5}(?![0-9]))?",
    re.ASCII,
)
_FILE = re.compile(
    r"(?<![\w./~\\-])(?:(?:~|\.{1,2})(?:/[A-Za-z0-9_.-]+){1,12}|(?:/[A-Za-z0-9_.-]+){2,12})/?(?<![.,-])"
    r"|(?<![\w.])[A-Za-z]:\\(?:[A-Za-z0-9_.-]{1,60}(?: [A-Za-z0-9_.-]{1,60}){0,4}\\){0,12}"
    r"[A-Za-z0-9_.-]{0,100}[A-Za-z0-9]",
    re.ASCII,
)
_HANDLE = re.compile(r"(?<![\w@.])@[A-Za-z][A-Za-z0-9_]{1,30}(?:\.[A-Za-z0-9_]{1,30}){0,3}(?!\w)", re.ASCII)
_PARTS = re.compile(r"[A-Za-z0-9]+|.", re.DOTALL)


def read(place: Place) -> ReadForm | None:
    """An address, its signs in words and its digits one by one."""
    if not place.language.signs:
        return None
    for pattern in (_URL, _MAIL, _HOST, _MACHINE, _FILE, _HANDLE, _DOCUMENT):
        found = place.match(pattern)
        if (
            found
            and not place.language.numerals.is_grouped(found[0])
            and ("." in found[0] or "@" in found[0] or "/" in found[0] or "\\" in found[0])
        ):
            return ReadForm(found.end(), spelled(_spoken_part(found[0], place), place))
    return None


def _spoken_part(address: str, place: Place) -> str:
    if place.language.speaks_scheme:
        return address
    return re.sub("^[a-z]+://", "", address, flags=re.IGNORECASE)


def spelled(address: str, place: Place) -> str:
    """An address in words."""
    language = place.language
    words = []
    parts = _PARTS.findall(address.rstrip("/") or address)
    for place_of, part in enumerate(parts):
        if part.isascii() and not part.isalnum():
            words.append(language.signs.get(part, ""))
        elif part.isascii():
            is_length = (
                parts[place_of - 1 : place_of] == ["/"] and len(part) < 3 and _MACHINE.fullmatch(address)
            )
            words.append(
                language.cardinal(part)
                if is_length
                else language.label(part, last=parts[place_of + 1 : place_of + 2] in ([], ["/"], [":"]))
            )
        else:
            words.append(part)
    return language.space.join(filter(None, words)) if language.space else "".join(words)
