"""Italian: tables of numbers, units, currencies, signs and names."""

from __future__ import annotations

from cosyvoice_runtime.text.reading.languages.european import currencies, listed, months, units
from cosyvoice_runtime.text.reading.languages.language import Unit

SMALL = listed(
    """zero uno due tre quattro cinque sei sette otto nove dieci undici dodici tredici quattordici quindici
    sedici
    diciassette diciotto diciannove"""
)
TENS = listed("""venti trenta quaranta cinquanta sessanta settanta ottanta novanta""")
LARGE = [
    ("milione", "milioni"), ("miliardo", "miliardi"), ("bilione", "bilioni"), ("biliardo", "biliardi"),
    ("trilione", "trilioni"), ("triliardo", "triliardi"), ("quadrilione", "quadrilioni"),
]  # fmt: skip
ORDINALS = listed("""primo secondo terzo quarto quinto sesto settimo ottavo nono decimo""")
MONTH_WORDS = listed(
    """gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre"""
)
MONTHS = months(
    MONTH_WORDS,
    {
        "gen": 1, "feb": 2, "mar": 3, "apr": 4, "mag": 5, "giu": 6, "lug": 7, "ago": 8, "set": 9, "sett": 9,
        "ott": 10, "nov": 11, "dic": 12,
    },
)  # fmt: skip
_PREFIXES = {
    "n": "nano", "µ": "micro", "m": "milli", "c": "centi", "d": "deci", "h": "etto", "k": "chilo",
    "K": "kilo",
    "M": "mega", "G": "giga", "T": "tera", "P": "peta",
}  # fmt: skip
UNITS = units(
    {
        "m": "metro/metri", "g": "grammo/grammi", "l L": "litro/litri", "s": "secondo/secondi",
        "B": "byte/byte", "bit": "bit/bit", "Hz": "hertz/hertz", "W": "watt/watt", "Wh": "wattora/wattora",
        "V": "volt/volt", "A": "ampere/ampere", "Ah": "amperora/amperora", "Pa": "pascal/pascal",
        "J": "joule/joule", "cal": "caloria/calorie/f", "Ω": "ohm/ohm", "N": "newton/newton",
        "mol": "mole/moli/f",
        "bar": "bar/bar", "t": "tonnellata/tonnellate/f", "ha": "ettaro/ettari", "min": "minuto/minuti",
        "h": "ora/ore/f", "sec": "secondo/secondi", "dB": "decibel/decibel", "%": "percento/percento",
        "‰": "per mille/per mille", "°C ℃ °_C": "grado Celsius/gradi Celsius",
        "°F ℉": "grado Fahrenheit/gradi Fahrenheit", "CV": "cavallo/cavalli", "mi": "miglio/miglia",
        "ft": "piede/piedi", "lb lbs": "libbra/libbre/f", "oz": "oncia/once/f", "px": "pixel/pixel",
        "mph": "miglio all'ora/miglia all'ora", "x": "per/per", "kB": "kilobyte/kilobyte",
        "l/100_km l/100km": "litro per cento chilometri/litri per cento chilometri",
        "mmHg": "millimetro di mercurio/millimetri di mercurio", "mq": "metro quadrato/metri quadrati",
        "Mbps": "megabit al secondo/megabit al secondo", "Gbps": "gigabit al secondo/gigabit al secondo",
    },
    _PREFIXES,
    {2: ("{} quadrato", "{} quadrati"), 3: ("{} cubo", "{} cubi")},
)  # fmt: skip
PER_UNITS = {
    sign: Unit(word, word)
    for sign, word in {
        "s": "al secondo", "min": "al minuto", "h": "all'ora", "km": "al chilometro", "m": "al metro",
        "kg": "al chilo", "g": "al grammo", "l": "al litro", "m²": "al metro quadrato",
        "mq": "al metro quadrato",
        "m³": "al metro cubo", "kWh": "al chilowattora", "ha": "all'ettaro", "giorno": "al giorno",
        "mese": "al mese", "anno": "all'anno", "settimana": "alla settimana", "ora": "all'ora",
        "notte": "a notte", "persona": "a persona",
    }.items()
}  # fmt: skip
SCALES = {
    word: word
    for word in ("milione", "milioni", "miliardo", "miliardi", "bilione", "bilioni", "mila")
} | {"mln": "milioni", "mld": "miliardi", "Mln": "milioni", "Mld": "miliardi"}  # fmt: skip
SINGLE_SCALES = {many: one for one, many in LARGE}
CURRENCIES = currencies(
    {
        "€ EUR eur euro": ("euro/euro", "centesimo/centesimi"),
        "$ US$ USD usd dollaro dollari": ("dollaro/dollari", "centesimo/centesimi"),
        "£ GBP gbp": ("sterlina/sterline/f", "penny/pence"),
        "CHF": ("franco svizzero/franchi svizzeri", "centesimo/centesimi"),
        "¥ JPY": ("yen/yen", ""),
        "CNY RMB": ("yuan/yuan", ""),
        "₩ KRW": ("won/won", ""),
        "₹ INR": ("rupia/rupie/f", ""),
        "₽ RUB": ("rublo/rubli", "copeco/copechi"),
        "SEK DKK NOK": ("corona/corone/f", ""),
        "₿ BTC": ("bitcoin/bitcoin", ""),
    }
)
SHORT_WEEKDAYS = {
    "lun": "lunedì", "mar": "martedì", "mer": "mercoledì", "gio": "giovedì", "ven": "venerdì",
    "sab": "sabato", "dom": "domenica",
}  # fmt: skip
SIGNS = {
    ".": "punto", "/": "slash", "\\": "barra inversa", "@": "chiocciola", "-": "trattino",
    "_": "trattino basso",
    ":": "due punti", "?": "punto interrogativo", "!": "punto esclamativo", "=": "uguale", "&": "e",
    "#": "cancelletto", "%": "percento", "+": "più", "~": "tilde",
}  # fmt: skip
SIGNS_BEFORE = {
    "-": "meno", "−": "meno", "+": "più", "~": "circa", "#": "numero", "≈": "circa", "≤": "al massimo",
    "≥": "almeno", "±": "più o meno", "<": "meno di", ">": "più di",
}  # fmt: skip
OPERATIONS = {
    "+": "più", "-": "meno", "−": "meno", "–": "meno", "=": "uguale a", "==": "uguale a", "×": "per",
    "*": "per",
    "÷": "diviso", "/": "diviso", "<": "è minore di", ">": "è maggiore di", "≈": "è circa uguale a",
    "≠": "è diverso da", "!=": "è diverso da", "≤": "è minore o uguale a", "<=": "è minore o uguale a",
    "≥": "è maggiore o uguale a", ">=": "è maggiore o uguale a", "±": "più o meno",
}  # fmt: skip
ABBREVIATIONS = {
    "sig.": "signor", "Sig.": "signor", "sig.ra": "signora", "Sig.ra": "signora", "sig.na": "signorina",
    "Sig.na": "signorina", "dott.": "dottor", "Dott.": "dottor", "dott.ssa": "dottoressa",
    "Dott.ssa": "dottoressa", "prof.": "professor", "Prof.": "professor", "prof.ssa": "professoressa",
    "Prof.ssa": "professoressa", "avv.": "avvocato", "Avv.": "avvocato", "ing.": "ingegner",
    "Ing.": "ingegner",
    "sec.": "secolo", "Pag.": "Pagina", "Art.": "Articolo", "Ca.": "Circa", "p.": "pagina",
    "ecc.": "eccetera", "etc.": "eccetera", "es.": "esempio", "p. es.": "per esempio",
    "p.es.": "per esempio",
    "pag.": "pagina", "pagg.": "pagine", "n.": "numero", "N.": "numero", "n°": "numero", "nr.": "numero",
    "tel.": "telefono", "Tel.": "telefono", "cap.": "capitolo", "art.": "articolo", "ca.": "circa",
    "v.le": "viale", "p.zza": "piazza", "c.so": "corso", "a.C.": "avanti Cristo", "d.C.": "dopo Cristo",
    "max.": "massimo", "min.": "minimo", "vol.": "volume", "fig.": "figura", "S.": "San",
    "vs.": "contro", "cfr.": "confronta",
}  # fmt: skip
KNOWN_LABELS = {"it": "it", "us": "us", "eu": "eu"}
MASCULINE = frozenset(
    listed("""problema tema sistema programma clima pianeta poeta giornalista artista
papa""")
)
NOT_COUNTED = frozenset(
    listed(
        """a ad al alla da dal dalla di del della dei delle in nel con per su tra fra e ed o è sono era che
        non si
        se come quando ma più meno anche la le lo il gli i un una ogni fa ha va sta"""
    )
)
"""Words after a number that it does not count."""
RULERS = frozenset(
    listed(
        """luigi enrico carlo vittorio emanuele umberto papa giovanni paolo pio benedetto federico filippo
        giorgio
        elisabetta re regina francesco leone gregorio clemente napoleone caterina"""
    )
)
QUEENS = frozenset({"elisabetta", "regina", "caterina"})
ROMAN = listed(
    """I II III IV V VI VII VIII IX X XI XII XIII XIV XV XVI XVII XVIII XIX XX XXI XXII XXIII XXIV XXV"""
)
CENTURIES = frozenset({"secolo"})
BEFORE_ROMAN = frozenset(listed("""capitolo tomo volume parte atto scena titolo allegato articolo fase"""))
