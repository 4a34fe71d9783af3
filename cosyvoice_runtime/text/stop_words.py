"""Frequent words that tell the languages of Europe from each other and from English."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import lru_cache

_WORDS = {
    "en": """the and of to in is was for with on at by it its this that these those you your he she
        his her they their we our i my me are be been has have had do does did not no but or if
        from as an a will would can could should what when where which who how why there here
        all one about into over after before please hello thanks just then than so because more
        most some any get got let make need want won new up out times day days year years may
        march august am per son pour men sin pm miles euro euros price total mon tue wed thu fri
        sat sun jan""",
    "de": """ich du er wir ihr nicht und oder aber das ist sind ein eine einen einem einer des dem
        den mit auf von zu zum zur im ins am um bei nach aus auch noch nur wie wenn weil dass
        haben habe hat hatte wird werden wurde kann bitte heute morgen gestern mehr sehr schon
        mein meine dein sein seine ihre uns euch mir dir sich es gibt geht kommt kostet uhr jahr
        jahre jahren tage tagen sie als vom beim bis seit hallo danke bzw stunden minuten
        prozent jahrhundert hier rund davon sowie etwa für über unter zwischen leben war waren
        mio mrd januar februar märz mai juni juli oktober dezember montag dienstag
        mittwoch donnerstag freitag samstag sonntag der die""",
    "es": """el los las una y en es por para con que del al lo se su sus mi tu yo ella ellos nosotros
        pero como muy ya hay hoy mañana ayer tengo tiene tienes quiero puedo son fue era estoy
        está están este esta ese esa eso cuando donde si no más también hola gracias a de la un
        le les nos años días cuesta desde hasta sobre todo todos horas siglo millones enero
        febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre lunes
        martes miércoles jueves viernes sábado domingo""",
    "fr": """les une et est dans pour par sur avec que qui des du au aux ce cet cette ces je tu il
        elle nous vous ils elles mon ma mes ton sa ses notre votre leur ne pas mais ou où donc
        très plus moins aussi bien oui non merci bonjour suis es sont était ont avons avez fait
        être avoir j'ai c'est d'un d'une le de la un en se si ans jours depuis quand comme tout
        tous aujourd'hui demain hier coûte à rendez heures heure siècle janvier février mars
        avril mai juin juillet août septembre octobre novembre décembre lundi mardi mercredi
        jeudi vendredi samedi dimanche""",
    "it": """il lo gli i uno una e è di da con su per tra fra che chi non ma anche ho hai ha abbiamo
        avete hanno sono sei siamo era mi ti si ci vi suo sua loro questo questa quello quella
        del della dei delle dello al alla ai alle dal dalla nel nella sul sulla come quando dove
        perché più molto oggi domani ieri ciao grazie anni giorni costa tutto tutti la le un se
        ore secolo milioni gennaio febbraio marzo aprile maggio giugno luglio settembre ottobre
        novembre dicembre lunedì martedì mercoledì giovedì venerdì sabato domenica""",
    "pt": """o os um uma e em é para por com que do da dos das no na nos nas ao aos à às se seu sua
        meu minha eu você ele ela nós eles não mas como muito já há hoje amanhã ontem tenho tem
        temos são foi era estou está este esta isso isto quando onde mais também olá obrigado
        obrigada anos dias custa desde até sobre tudo todos de a pelo pela reais horas século
        milhões janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro
        dezembro segunda terça quarta quinta sexta sábado domingo""",
    "nl": """de het een en van is dat op te in zijn voor met niet aan er om ook als maar dan zij bij
        nog wel geen ik je hij wij ze naar uit deze worden heeft hebben kan door over euro uur
        dag jaar januari""",
    "da": """og i at det er en den til på som de med han af for ikke der var mig sig men et har om vi
        min havde ham hun nu over da fra du ud sin dem os op hans hvor kr""",
    "sv": """och i att det som en på är av för med den till inte har de ett om men var jag vi så han
        från kan när du hon nu alla efter upp också vid där""",
    "pl": """i w nie na z że do to jest się jak ale po co za tak od tylko jego o już czy są był dla
        ma przez""",
    "ro": """și de la în cu pe nu este un o care din că mai sa se al ale sunt fost pentru""",
    "id": """yang dan di ini itu dengan untuk tidak dari dalam akan pada juga saya ke karena ada kami
        bisa adalah""",
}
_UNREAD = frozenset({"en", "nl", "da", "sv", "pl", "ro", "id"})
"""English, and languages that only keep their texts from being taken for others."""
_NAMES = frozenset(
    [
        "de",
        "la",
        "le",
        "du",
        "da",
        "do",
        "des",
        "del",
        "los",
        "las",
        "el",
        "di",
        "von",
        "der",
        "die",
        "van",
        "den",
        "dos",
        "das",
        "al",
        "il",
        "et",
        "est",
    ]
)
"""Words that names of people and places have in English, too."""
_LETTERS = {"ß": "de", "ñ": "es", "¿": "es", "¡": "es", "ã": "pt", "õ": "pt", "œ": "fr"}
_WORD = re.compile(r"(?<![\w.@])[^\W\d_]+(?:['’][^\W\d_]+)?|[¿¡]")
_REACH = 600
"""Characters from the start that are looked at."""
_LEAST_ASCII, _LEAST = 2.0, 1.5
_LEAST_SHARE = 0.25
"""The words of a language weigh so much at least, together and for each word of the text."""
_LEAST_ALONE, _SHARE_ALONE = 1.0, 0.4
"""The same where no English word is."""
_RUSSIAN = re.compile(
    "[ыэъЫЭЁё]|(?i:\\b(?:что|или|для|если|был|была|есть|году|года|лет|мы|вы|рублей|человек|минут|января|апреля|"
    "июля|августа|сентября|октября|ноября|декабря|февраля)\\b)"
)
_OTHER_CYRILLIC = re.compile("[іїєґўђјљњћџѓќѕІЇЄҐЎЂЈЉЊЋЏ]")


def _weights() -> dict[str, dict[str, float]]:
    """The weight of each word for each language: less where others or names have it, none if English has."""
    languages = Counter(word for listed in _WORDS.values() for word in listed.split())
    english = set(_WORDS["en"].split())
    weights: dict[str, dict[str, float]] = defaultdict(dict)
    for language, listed in _WORDS.items():
        for word in listed.split():
            if language == "en" or word not in english:
                shared = languages[word] > 1 or word in _NAMES or len(word) == 1
                weights[word][language] = 0.5 if shared else 1.0
    return dict(weights)


_WEIGHTS = _weights()


def european(text: str) -> str | None:
    """The language of Europe whose frequent words or letters the text has; None where none stands out.

    English is never found: it is what a text of ASCII letters is otherwise.
    """
    return _found(text[:_REACH])


@lru_cache(maxsize=512)
def _found(text: str) -> str | None:
    if _RUSSIAN.search(text) and not _OTHER_CYRILLIC.search(text):
        return "ru"
    words = {word.replace("’", "'").lower() for word in _WORD.findall(text)}
    total: dict[str, float] = defaultdict(float)
    for word in words:
        for language, weight in _WEIGHTS.get(word, {}).items():
            total[language] += weight
    for letter, language in _LETTERS.items():
        total[language] += letter in text
    if not total:
        return None
    first, second = [*sorted(total, key=total.__getitem__, reverse=True), ""][:2]
    least = max(_LEAST_ASCII if text.isascii() else _LEAST, _LEAST_SHARE * len(words))
    if "en" not in total:
        least = min(least, max(_LEAST_ALONE, _SHARE_ALONE * len(words)))
    if first in _UNREAD or total[first] == total.get(second) or total[first] < least:
        return None
    return first
