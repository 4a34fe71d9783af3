"""Genders and cases of German words around a number, as their endings and the words before show them."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.languages import german_tables as tables
from cosyvoice_runtime.text.reading.languages.place import Place

_FEMININE = re.compile(
    r"(?:ung|heit|keit|schaft|ion|tät|e|(?<!^)ei|ur|ik|[a-z]a|[Tt]ochter|Schwester|Mutter|[Nn]ummer|[Mm]auer|Butter|Feder|Oper|Wand|Maus|Bank|Tür|"
    r"Gabel|Regel|Insel|Tafel|Schüssel|[Zz]wiebel|[Kk]artoffel|Nudel|[Ww]urst|[Nn]uss|[Ff]rucht|[Kk]raft|Luft|Nacht|Hand|"
    r"[Ss]tadt|[Pp]erson|[Ff]rau|Uhr|avocado|zahl|wahl|form|art|zeit|bahn|fahrt|schicht|ampel|kapsel|^kl|^lw|^ssw|tonne|mango|zucchini|ananas|handvoll|chili)$",
    re.IGNORECASE,
)
_NEUTER_ENDS = re.compile(
    r"(?:chen|lein|ment|um|stück|gerät|eck|glas|blatt|brot|öl|fleisch|netz|paket|haus)$"
)
_MASCULINE_ENDS = re.compile(
    rf"(?:{'|'.join(sorted(word for word in tables.MASCULINE_COUNTED if len(word) > 3))}|würfel|kopf|bund|"
    r"zweig|strauch|riegel|streifen|ring|zehntel|kürbis|kohl|spargel|ingwer|pfeffer|karton|sekt|rest)$"
)
_DATIVE = re.compile(
    r"\b(?i:nach|vor|seit|mit|aus|bei|zu|in|von|binnen|innerhalb von|ab|außer|gegenüber) "
    r"(?:etwa |ca\. |nur |je |rund |genau |mindestens |höchstens |fast )?"
    r"(?:[0-9]{1,4} [A-Z]\w{1,20} und )?\Z"
)
_ACCUSATIVE = re.compile(
    r"\b(?i:habe|hat|haben|hatte|hatten|hast|brauch\w*|kauf\w*|kost\w*|wieg\w*|dauer\w*|nimm|nehmen|nehme|gib|geben|gibt|"
    r"bekomm\w*|erhält|erhalten|für|um|ohne|gegen|durch|pro|bezahl\w*|zahl\w*|füg\w*|enthält|besitzt|esse|isst|trink\w*|"
    r"rühr\w*|misch\w*|streu\w*|gieß\w*|verwend\w*|benötig\w*|ergänz\w*|schneid\w*|wart\w*|"
    r"jeweils) (?:etwa |ca\. |nur |noch |genau |je |mich |dich |Sie |ich |er |sie |wir )?"
    r"(?:[0-9]{1,4} [A-Z]\w{1,20}(?: und |, ))?\Z"
)
_HALVES = {
    "m": {"": "ein halber", "accusative": "einen halben", "dative": "einem halben"},
    "f": {"": "eine halbe", "accusative": "eine halbe", "dative": "einer halben"},
    "n": {"": "ein halbes", "accusative": "ein halbes", "dative": "einem halben"},
}


def is_feminine(noun: str) -> bool:
    word = noun.lower()
    return bool(_FEMININE.search(word)) and word not in tables.MASCULINE and word not in tables.NEUTER


def gender(noun: str) -> str:
    """``m``, ``f`` or ``n``."""
    word = noun.lower()
    if word in tables.NEUTER or _NEUTER_ENDS.search(word):
        return "n"
    if _MASCULINE_ENDS.search(word) or word in tables.MASCULINE_COUNTED:
        return "m"
    return "f" if is_feminine(noun) else "n"


def case(place: Place) -> str:
    """``dative`` or ``accusative``, empty for another."""
    if _DATIVE.search(place.before):
        return "dative"
    return "accusative" if _ACCUSATIVE.search(place.before) else ""


def half(gender: str, case: str) -> str:
    """``ein halber``, ``einer halben``."""
    return _HALVES[gender][case]
