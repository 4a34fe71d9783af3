"""French: tables of numbers, units, currencies, signs and names."""

from __future__ import annotations

from cosyvoice_runtime.text.reading.languages.european import currencies, listed, months, units
from cosyvoice_runtime.text.reading.languages.language import Unit

SMALL = listed(
    """zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize"""
)
TENS = ["dix", "vingt", "trente", "quarante", "cinquante", "soixante", "", "quatre-vingt"]
LARGE = [
    ("million", "millions"), ("milliard", "milliards"), ("billion", "billions"), ("billiard", "billiards"),
    ("trillion", "trillions"), ("trilliard", "trilliards"), ("quadrillion", "quadrillions"),
]  # fmt: skip
PARTS = {2: "demi", 3: "tiers", 4: "quart"}
MONTH_WORDS = listed(
    """janvier février mars avril mai juin juillet août septembre octobre novembre décembre"""
)
MONTHS = months(
    MONTH_WORDS,
    {
        "fevrier": 2, "aout": 8, "decembre": 12, "janv": 1, "févr": 2, "fév": 2, "avr": 4, "juil": 7,
        "sept": 9, "oct": 10, "nov": 11, "déc": 12,
    },
)  # fmt: skip
_PREFIXES = {
    "n": "nano", "µ": "micro", "m": "milli", "c": "centi", "d": "déci", "h": "hecto", "k": "kilo",
    "K": "kilo",
    "M": "méga", "G": "giga", "T": "téra", "P": "péta",
}  # fmt: skip
_OCTETS = {"o": "kKMGTP"}
UNITS = units(
    {
        "m": "mètre/mètres", "g": "gramme/grammes", "l L": "litre/litres", "s": "seconde/secondes/f",
        "B": "octet/octets", "bit": "bit/bits", "Hz": "hertz/hertz", "W": "watt/watts",
        "Wh": "wattheure/wattheures", "V": "volt/volts", "A": "ampère/ampères",
        "Ah": "ampère-heure/ampères-heures", "Pa": "pascal/pascals", "J": "joule/joules",
        "cal": "calorie/calories/f", "Ω": "ohm/ohms", "N": "newton/newtons", "mol": "mole/moles/f",
        "bar": "bar/bars", "t": "tonne/tonnes/f", "ha": "hectare/hectares", "min": "minute/minutes/f",
        "h": "heure/heures/f", "sec": "seconde/secondes/f", "j": "jour/jours", "dB": "décibel/décibels",
        "%": "pour cent/pour cent", "‰": "pour mille/pour mille", "°": "degré/degrés",
        "°C ℃ °_C": "degré Celsius/degrés Celsius", "°F ℉": "degré Fahrenheit/degrés Fahrenheit",
        "ch": "cheval/chevaux", "mi": "mile/miles", "ft": "pied/pieds", "lb lbs": "livre/livres/f",
        "oz": "once/onces/f", "px": "pixel/pixels", "x": "fois/fois/f",
        "c._à_s. c._à_soupe càs": "cuillère à soupe/cuillères à soupe/f",
        "c._à_c. c._à_café càc": "cuillère à café/cuillères à café/f",
        "l/100_km l/100km L/100_km": "litre aux cent kilomètres/litres aux cent kilomètres",
        "mmHg": "millimètre de mercure/millimètres de mercure",
        "mph": "mile à l'heure/miles à l'heure", "pers.": "personne/personnes/f",
        "Mbps": "mégabit par seconde/mégabits par seconde",
        "Gbps": "gigabit par seconde/gigabits par seconde",
    },
    _PREFIXES,
    {2: ("{} carré", "{} carrés"), 3: ("{} cube", "{} cubes")},
) | units({"o": "octet/octets"}, _PREFIXES, {}, _OCTETS, lengths=())  # fmt: skip
del UNITS["o"]
PER_UNITS = {
    sign: Unit(words, words)
    for sign, words in {
        **{sign: f"par {UNITS[sign].one}" for sign in listed("s min km m kg g l m² m³ kWh ha")},
        "h": "à l'heure", "hab": "par habitant", "pers.": "par personne", "j": "par jour",
        **{word: f"par {word}" for word in listed("jour mois an semaine heure nuit personne")},
    }.items()
}  # fmt: skip
SCALES = {
    word: word
    for word in ("million", "millions", "milliard", "milliards", "billion", "billions", "mille")
} | {"M": "millions", "Md": "milliards", "Mds": "milliards", "k": "mille"}  # fmt: skip
SINGLE_SCALES = {many: one for one, many in LARGE}
CURRENCIES = currencies(
    {
        "€ EUR eur euro euros": ("euro/euros", "centime/centimes"),
        "$ US$ USD dollar dollars": ("dollar/dollars", "cent/cents"),
        "CA$ CAD": ("dollar canadien/dollars canadiens", "cent/cents"),
        "£ GBP": ("livre/livres/f", "penny/pence"),
        "CHF": ("franc suisse/francs suisses", "centime/centimes"),
        "francs": ("franc/francs", "centime/centimes"),
        "¥ JPY": ("yen/yens", ""),
        "CNY RMB": ("yuan/yuans", ""),
        "₩ KRW": ("won/wons", ""),
        "₹ INR": ("roupie/roupies/f", ""),
        "₽ RUB": ("rouble/roubles", "kopeck/kopecks"),
        "XOF XAF FCFA": ("franc CFA/francs CFA", ""),
        "MAD": ("dirham/dirhams", "centime/centimes"),
        "SEK DKK NOK": ("couronne/couronnes/f", ""),
        "₿ BTC": ("bitcoin/bitcoins", ""),
    }
)
SHORT_WEEKDAYS = {
    "lun": "lundi", "mar": "mardi", "mer": "mercredi", "jeu": "jeudi", "ven": "vendredi", "sam": "samedi",
    "dim": "dimanche",
}  # fmt: skip
SIGNS = {
    ".": "point", "/": "barre oblique", "\\": "barre inverse", "@": "arobase", "-": "tiret",
    "_": "tiret bas",
    ":": "deux points", "?": "point d'interrogation", "=": "égal", "&": "et", "#": "dièse",
    "%": "pour cent",
    "+": "plus", "~": "tilde",
}  # fmt: skip
SIGNS_BEFORE = {
    "-": "moins", "−": "moins", "+": "plus", "~": "environ", "#": "numéro", "≈": "environ", "≤": "au plus",
    "≥": "au moins", "±": "plus ou moins", "<": "moins de", ">": "plus de",
}  # fmt: skip
OPERATIONS = {
    "+": "plus", "-": "moins", "−": "moins", "–": "moins", "=": "égale", "==": "égale", "×": "fois",
    "*": "fois", "÷": "divisé par", "/": "divisé par", "<": "est inférieur à", ">": "est supérieur à",
    "≈": "est à peu près égal à", "≠": "est différent de", "!=": "est différent de",
    "≤": "est inférieur ou égal à", "<=": "est inférieur ou égal à", "≥": "est supérieur ou égal à",
    ">=": "est supérieur ou égal à", "±": "plus ou moins",
}  # fmt: skip
ABBREVIATIONS = {
    "M.": "monsieur", "MM.": "messieurs", "Mme": "madame", "Mmes": "mesdames", "Mlle": "mademoiselle",
    "Mᵐᵉ": "madame", "Mᵐᵉˢ": "mesdames", "Mˡˡᵉ": "mademoiselle", "Mˡˡᵉˢ": "mesdemoiselles", "Dʳ": "docteur",
    "Dʳᵉ": "docteure", "Dʳᵉˢ": "docteures", "Mlles": "mesdemoiselles", "Dr": "docteur", "Dr.": "docteur",
    "Pr": "professeur", "Me": "maître", "p. ex.": "par exemple", "p.ex.": "par exemple",
    "c.-à-d.": "c'est-à-dire",
    "etc.": "et cetera", "env.": "environ", "n°": "numéro", "N°": "numéro", "nº": "numéro", "av.": "avenue",
    "bd": "boulevard", "St": "saint", "Ste": "sainte", "tél.": "téléphone", "Tél.": "téléphone",
    "chap.": "chapitre",
    "art.": "article", "vol.": "volume", "fig.": "figure", "p.": "page", "pp.": "pages", "av. J.-C.":
    "avant Jésus-Christ", "apr. J.-C.": "après Jésus-Christ", "max.": "maximum", "min.": "minimum",
    "cf.": "voir", "Cf.": "Voir", "th.": "thermostat", "Bd": "boulevard", "Av.": "avenue",
    "apt.": "appartement",
    "éd.": "édition", "hab.": "habitants", "réf.": "référence", "ex.": "exemple", "vs.": "contre",
    "vs": "contre", "§": "paragraphe",
}  # fmt: skip
FEMININE = frozenset(
    listed(
        """heure minute seconde semaine année fois personne page femme fille ville voiture pomme tasse étape
        chose
        livre tonne once part place porte table chambre rue langue ligne lettre image vidéo question réponse
        idée
        main tête carte photo nuit maison chaise boîte bouteille cuillère tranche feuille mère sœur amie
        règle
        tâche note équipe guerre route plante pièce photo erreur couleur fleur classe course"""
    )
)
BEFORE_ROMAN = frozenset(
    listed(
        """louis napoléon henri charles philippe françois jean paul pie benoît grégoire chapitre tome volume
        partie
        acte scène titre annexe article phase guerre"""
    )
)
