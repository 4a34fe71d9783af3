"""Genders and cases of German words around a number, as their endings and the words before show them."""

from __future__ import annotations

import re

from cosyvoice_runtime.text.reading.languages import german_tables as tables
from cosyvoice_runtime.text.reading.languages.place import Place

_FEMININE = re.compile(
    r"(?:ung|heit|keit|schaft|ion|tät|e|(?<!^)ei|ur|ik|[a-z]a|[Tt]ochter|Schwester|Mutter|[Nn]ummer|[Mm]auer|Butter|Feder|Oper|(?<!auf)(?<!ge)Wand|Maus|Bank|Tür|"
    r"Gabel|Regel|(?<!p)Insel|Tafel|Schüssel|[Zz]wiebel|[Kk]artoffel|Nudel|[Ww]urst|[Nn]uss|[Ff]rucht|[Kk]raft|Luft|Nacht|Hand|"
    r"[Ss]tadt|[Pp]erson|[Ff]rau|Uhr|avocado|zahl|wahl|form|art|zeit|bahn|fahrt|schicht|ampel|kapsel|^kl|^aufl|dosis|basis|praxis|staffel|formel|kugel|nadel|wurzel|schulter|ziffer|feier|"
    r"dauer|steuer|kammer|trommel|klammer|saison|(?:[rtd]|qu)enz|stanz|nanz|bilanz|welt|antwort|geburt|sicht|pflicht|"
    r"schlacht|macht|schrift|kunft|^ausg|^lw|^ssw|tonne|mango|zucchini|ananas|handvoll|chili)$",
    re.IGNORECASE,
)
_NEUTER_ENDS = re.compile(
    r"(?:chen|lein|ment|um|stück|gerät|eck|glas|blatt|brot|öl|fleisch|netz|paket|haus|auto|pulver|wasser|messer|feuer|fenster|zimmer|muster|lager|theater|orchester|register|mittel)$"
)
_MASCULINE_ENDS = re.compile(
    rf"(?:{'|'.join(sorted(word for word in tables.MASCULINE_COUNTED if len(word) > 3))}|würfel|kopf|bund|"
    r"zweig|strauch|riegel|streifen|ring|zehntel|kürbis|kohl|spargel|ingwer|pfeffer|karton|sekt|rest)$"
)
_MASCULINE_SHAPES = re.compile(
    r"(?:er|el|ling|or|ismus|ig|ist|ant|ent|eur|är|us|lauf|gang|zug|platz|lauch|schuss)$"
)
_ITEMS = r"(?:[0-9¼½¾/,]{1,5} [^\W\d_]{1,20}\.?(?: [^\W\d_]{1,20}){0,2}(?:, | und )){0,3}\Z"
"""Other amounts of the same list."""
_DATIVE = re.compile(
    r"\b(?i:nach|vor|seit|mit|aus|bei|zu|in|von|binnen|innerhalb von|ab|außer|gegenüber|innerhalb|unter) "
    r"(?:etwa |ca\. |nur |je |rund |genau |mindestens |höchstens |fast )?" + _ITEMS
)
_ACCUSATIVE = re.compile(
    r"\b(?i:habe|hat|haben|hatte|hatten|hast|brauch\w*|kauf\w*|kost\w*|wieg\w*|dauer\w*|nimm\w*|nehmen|nehme|"
    r"gib|geben|gibt|bekomm\w*|erhält|erhalten|für|um|ohne|gegen|durch|pro|bezahl\w*|zahl\w*|enthält|besitzt|"
    r"ess[et]|isst|trink\w*|benötig\w*|wart\w*|jeweils|auf) "
    r"(?:etwa |ca\. |nur |noch |genau |je |mich |dich |Sie |ich |er |sie |wir |es )?" + _ITEMS
)
_ORDER = re.compile(
    r"(?:\b(?:brauch|benötig)(?:e|st|t|en) |\b[A-ZÄÖÜa-zäöüß]{3,14}(?:st du|en Sie|t man|en wir|e ich) |"
    r"(?:\A|[.!?:;\n*-] ?|\b(?i:und|dann|danach|anschließend|zuletzt|nun|jetzt) |, )"
    r"(?:(?i:nimm|nehmen|nehmt|gib|geb(?:en|t)|iss|esst|(?:ver|be|er|zer)?(?:füg|rühr|misch|streu|gieß|wend|teil|schneid|"
    r"schäl|hack|reib|press|trink|kauf|stell|heb|schlag|hitz|wärm|lass|lös|träufel|leg|mix|koch|brat|press|back|"
    r"rechn|zieh|klick|pack|trag|plan|buch|reserv|pflanz|schraub|bohr|mess|schreib|druck|ersetz)\w{0,5}) |"
    r"[A-ZÄÖÜ][a-zäöüß]{2,12}(?<!eit|ung)(?:e|en Sie) (?=(?:etwa |ca\. |noch |nur )?\Z)))"
    r"(?:[^.!?:;\n]|\b\w{1,4}\.)*\Z"
)
"""Where a sentence asks for something, whose object follows: ``Füge Mehl und``."""
_NOT_ITS_OBJECT = re.compile(
    r", (?:dass|weil|wenn|bis|damit|sobald|denn|da) |\b(?:ist|sind|reicht|reichen|genügt) "
)
_INFINITIVE = re.compile(
    r"(?!(?:[^.,;:!?()\n]{0,60} )?"
    r"(?:ist|sind|war|waren|wird|werden|wurde|wurden|muss|kann|soll|darf|haben|hat|zu) )"
    r"(?:[^.,;:!?()\n]|(?<=[A-Z][a-z][a-z])\.){0,80}? "
    r"(?!(?:oben|unten|morgen|gestern|sieben|neben|eben|modern|sondern|fern|gern) ?)"
    r"[a-zäöüß]{2,14}(?:en|ern|eln)(?=[.,;!?\n)]|\Z| und )"
)
"""The rest of a sentence without a subject: ``1/2 Apfel schälen``."""
_ENDS = {
    "m": {"": ("ein", "er"), "accusative": ("einen", "en"), "dative": ("einem", "en")},
    "f": {"": ("eine", "e"), "accusative": ("eine", "e"), "dative": ("einer", "en")},
    "n": {"": ("ein", "es"), "accusative": ("ein", "es"), "dative": ("einem", "en")},
}
"""One, and the ending of an adjective after it."""
_LOOKED_AT = 160


def is_feminine(noun: str) -> bool:
    word = noun.lower()
    return bool(_FEMININE.search(word)) and word not in tables.MASCULINE and word not in tables.NEUTER


def is_neuter(noun: str) -> bool:
    word = noun.lower()
    return word in tables.NEUTER or bool(_NEUTER_ENDS.search(word))


def gender(noun: str) -> str:
    """``m``, ``f`` or ``n``."""
    word = noun.lower()
    if is_neuter(noun):
        return "n"
    if _MASCULINE_ENDS.search(word) or word in tables.MASCULINE_COUNTED:
        return "m"
    if _MASCULINE_SHAPES.search(word) and not is_feminine(noun):
        return "m"
    return "f" if is_feminine(noun) else "n"


def case(place: Place, end: int) -> str:
    """``dative`` or ``accusative`` for what one is that ends there, empty for another."""
    before = place.text[max(0, place.start - _LOOKED_AT) : place.start]
    if _DATIVE.search(before):
        return "dative"
    order = _ORDER.search(before)
    if _ACCUSATIVE.search(before) or (order and not _NOT_ITS_OBJECT.search(before, order.start())):
        return "accusative"
    return "accusative" if _INFINITIVE.match(place.text, end) else ""


def one(gender: str, case: str, adjective: str = "") -> str:
    """``ein``, ``einer``; with ``halb`` ``ein halber``, ``einer halben``."""
    article, ending = _ENDS[gender][case]
    return f"{article} {adjective}{ending}" if adjective else article
