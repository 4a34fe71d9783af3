"""English: tables of units, currencies, signs and names."""

from __future__ import annotations

from collections.abc import Mapping

from cosyvoice_runtime.text.reading.languages.language import Currency, Unit

MONTH_NAMES = [
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
    "november", "december",
]  # fmt: skip
MONTHS = {
    **{name: number for number, name in enumerate(MONTH_NAMES, 1)},
    **{name[:3]: number for number, name in enumerate(MONTH_NAMES, 1)},
    "sept": 9,
}
LETTERS = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ζ": "zeta", "η": "eta",
    "θ": "theta", "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu", "ξ": "xi", "π": "pi", "ρ": "rho",
    "σ": "sigma", "τ": "tau", "φ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega", "Δ": "delta", "Ω": "omega",
    "Σ": "sigma", "Φ": "phi",
}  # fmt: skip
HALVES = {"am": "AM", "pm": "PM"}
SCALES = {
    "k": "thousand", "K": "thousand", "m": "million", "M": "million", "mn": "million", "bn": "billion",
    "b": "billion", "B": "billion", "tn": "trillion", "T": "trillion",
    **{word: word for word in ("hundred", "thousand", "million", "billion", "trillion")},
}  # fmt: skip
SIGNS = {
    ".": "dot", "/": "slash", "\\": "backslash", "@": "at", "-": "dash", "_": "underscore", ":": "colon",
    "?": "question mark", "=": "equals", "&": "and", "#": "hash", "%": "percent", "+": "plus", "~": "tilde",
}  # fmt: skip
SIGNS_BEFORE = {
    "-": "minus", "−": "minus", "+": "plus", "~": "about", "#": "number", "№": "number", "≈": "about",
    "≤": "at most", "≥": "at least", "±": "plus or minus", "<": "less than", ">": "more than",
}  # fmt: skip
OPERATIONS = {
    "+": "plus", "-": "minus", "−": "minus", "–": "minus", "=": "equals", "==": "equals", "×": "times",
    "*": "times", "÷": "divided by", "/": "divided by", "<": "is less than", ">": "is greater than",
    "≈": "is about", "≠": "is not equal to", "!=": "is not equal to", "≤": "is at most", "<=": "is at most",
    "≥": "is at least", ">=": "is at least", "±": "plus or minus",
}  # fmt: skip


def _units() -> dict[str, Unit]:
    """Units with their plurals: those in ``-s`` first."""
    plural = {
        "mm": "millimeter", "cm": "centimeter", "dm": "decimeter", "m": "meter", "km": "kilometer",
        "µm": "micrometer", "nm": "nanometer", "yd": "yard", "mi": "mile", "mile": "mile", "miles": "mile",
        "mg": "milligram", "g": "gram", "kg": "kilogram", "mcg": "microgram", "µg": "microgram", "t": "ton",
        "lb": "pound", "lbs": "pound", "oz": "ounce", "ml": "milliliter", "mL": "milliliter", "l": "liter",
        "L": "liter", "cl": "centiliter", "dl": "deciliter", "dL": "deciliter", "gal": "gallon",
        "ms": "millisecond", "µs": "microsecond", "ns": "nanosecond", "s": "second", "sec": "second",
        "secs": "second", "min": "minute", "mins": "minute", "h": "hour", "hr": "hour", "hrs": "hour",
        "KB": "kilobyte", "kB": "kilobyte", "MB": "megabyte", "GB": "gigabyte", "TB": "terabyte",
        "PB": "petabyte", "V": "volt", "mV": "millivolt", "kV": "kilovolt", "A": "amp", "mA": "milliamp",
        "Ah": "amp hour", "mAh": "milliamp hour", "W": "watt", "mW": "milliwatt", "kW": "kilowatt",
        "MW": "megawatt", "GW": "gigawatt", "Wh": "watt hour", "kWh": "kilowatt hour", "MWh": "megawatt hour",
        "Pa": "pascal", "kPa": "kilopascal", "hPa": "hectopascal", "MPa": "megapascal", "J": "joule",
        "kJ": "kilojoule", "cal": "calorie", "kcal": "kilocalorie", "dB": "decibel", "ha": "hectare",
        "N": "newton", "Nm": "newton meter", "mol": "mole", "mmol": "millimole", "px": "pixel",
        "tbsp": "tablespoon", "tsp": "teaspoon", "Ω": "ohm", "kΩ": "kilohm", "day": "day", "week": "week",
        "month": "month", "year": "year",
    }  # fmt: skip
    same = {
        "Hz": "hertz", "kHz": "kilohertz", "MHz": "megahertz", "GHz": "gigahertz", "THz": "terahertz",
        "ppm": "parts per million", "ppb": "parts per billion", "rpm": "RPM", "fps": "FPS", "bpm": "BPM",
        "dpi": "DPI", "psi": "PSI", "mmHg": "millimeters of mercury", "%": "percent", "‰": "per mille",
        "pp": "percentage points", "bps": "bits per second",
    }  # fmt: skip
    odd = {
        "in": Unit("inch", "inches"),
        "ft": Unit("foot", "feet"),
        "°": Unit("degree", "degrees"),
        "℃": Unit("degree Celsius", "degrees Celsius"),
        "℉": Unit("degree Fahrenheit", "degrees Fahrenheit"),
        "°C": Unit("degree Celsius", "degrees Celsius"),
        "°F": Unit("degree Fahrenheit", "degrees Fahrenheit"),
        "mph": Unit("mile per hour", "miles per hour"),
        "kph": Unit("kilometer per hour", "kilometers per hour"),
        "kmh": Unit("kilometer per hour", "kilometers per hour"),
        "sq ft": Unit("square foot", "square feet"),
        "cc": Unit("cc", "cc"),
    }
    bits = {
        f"{sign}bps": Unit(f"{word}bit per second", f"{word}bits per second")
        for sign, word in {
            "k": "kilo",
            "K": "kilo",
            "M": "mega",
            "m": "mega",
            "G": "giga",
            "T": "tera",
        }.items()
    }
    found = {sign: Unit(word, f"{word}s") for sign, word in plural.items()}
    found |= {sign: Unit(word, word) for sign, word in same.items()} | odd | bits
    found |= {
        f"{sign}{power}": Unit(f"{word} {found[sign].one}", f"{word} {found[sign].many}")
        for sign in ("mm", "cm", "m", "km", "in", "ft", "mi", "yd")
        for power, word in {
            "²": "square",
            "2": "square",
            "^2": "square",
            "³": "cubic",
            "3": "cubic",
            "^3": "cubic",
        }.items()
    }
    return found | {sign.replace("µ", "μ"): unit for sign, unit in found.items() if "µ" in sign}


def _currencies() -> dict[str, Currency]:
    """Currencies by sign, code and letters before a dollar sign."""
    dollars = {
        "": ("", "USD"), "US": ("US ", "USD"), "A": ("Australian ", "AUD"), "AU": ("Australian ", "AUD"),
        "C": ("Canadian ", "CAD"), "CA": ("Canadian ", "CAD"), "HK": ("Hong Kong ", "HKD"),
        "NT": ("New Taiwan ", "TWD"), "NZ": ("New Zealand ", "NZD"), "S": ("Singapore ", "SGD"),
        "SG": ("Singapore ", "SGD"),
    }  # fmt: skip
    found = {
        f"{sign}$": Currency(f"{name}dollar", f"{name}dollars", "cent", "cents")
        for sign, (name, _) in dollars.items()
    }
    found |= {code: found[f"{sign}$"] for sign, (_, code) in dollars.items() if sign}
    return found | {
        "€": Currency("euro", "euros", "cent", "cents"),
        "EUR": Currency("euro", "euros", "cent", "cents"),
        "£": Currency("pound", "pounds", "penny", "pence"),
        "GBP": Currency("pound", "pounds", "penny", "pence"),
        "¥": Currency("yen", "yen"),
        "JPY": Currency("yen", "yen"),
        "CNY": Currency("yuan", "yuan"),
        "RMB": Currency("yuan", "yuan"),
        "₩": Currency("won", "won"),
        "KRW": Currency("won", "won"),
        "₹": Currency("rupee", "rupees", "paisa", "paise"),
        "INR": Currency("rupee", "rupees", "paisa", "paise"),
        "R$": Currency("real", "reais", "centavo", "centavos"),
        "BRL": Currency("real", "reais", "centavo", "centavos"),
        "CHF": Currency("Swiss franc", "Swiss francs", "centime", "centimes"),
        "₽": Currency("ruble", "rubles", "kopeck", "kopecks"),
        "RUB": Currency("ruble", "rubles", "kopeck", "kopecks"),
        "₿": Currency("bitcoin", "bitcoins"),
        "MXN": Currency("Mexican peso", "Mexican pesos", "centavo", "centavos"),
        "SEK": Currency("Swedish krona", "Swedish kronor"),
        "₫": Currency("dong", "dong"),
        "฿": Currency("baht", "baht"),
        "₺": Currency("lira", "lira"),
        "₴": Currency("hryvnia", "hryvnias"),
        "₱": Currency("peso", "pesos", "centavo", "centavos"),
        "₪": Currency("shekel", "shekels"),
        "₦": Currency("naira", "naira"),
        "¢": Currency("cent", "cents"),
    }


def _durations(units: Mapping[str, Unit]) -> dict[str, Unit]:
    """Units of durations; there m is minutes."""
    signs = ("ms", "s", "sec", "secs", "min", "mins", "h", "hr", "hrs")
    return {sign: units[sign] for sign in signs} | {"m": units["min"], "d": units["day"]}


def _per(units: Mapping[str, Unit]) -> dict[str, Unit]:
    """Units, and words of time and people, that an amount is for each of."""
    words = (
        "second",
        "minute",
        "hour",
        "day",
        "week",
        "month",
        "quarter",
        "year",
        "night",
        "person",
        "user",
        "seat",
        "item",
        "piece",
        "page",
    )
    signs = {sign: unit for sign, unit in units.items() if sign not in ("%", "‰", "pp", "in", "A")}
    more = {
        **{f"s{power}": Unit("second squared", "seconds squared") for power in ("²", "2", "^2")},
        "yr": Unit("year", "years"),
        "mo": Unit("month", "months"),
        "wk": Unit("week", "weeks"),
        "d": Unit("day", "days"),
    }
    return signs | {word: Unit(word, f"{word}s") for word in words} | more


UNITS = _units()
PER_UNITS = _per(UNITS)
TIME_UNITS = _durations(UNITS)
CURRENCIES = _currencies()
STREETS = {
    "St": "Street", "Ave": "Avenue", "Rd": "Road", "Blvd": "Boulevard", "Dr": "Drive", "Ln": "Lane",
    "Expy": "Expressway", "Hwy": "Highway", "Ct": "Court", "Pl": "Place", "Sq": "Square", "Pkwy": "Parkway",
    "Ter": "Terrace", "Cir": "Circle", "st": "Street", "Street": "Street", "Avenue": "Avenue", "Road": "Road",
    "Boulevard": "Boulevard", "Lane": "Lane", "Drive": "Drive",
}  # fmt: skip
QUARTERS = {"N": "North", "S": "South", "E": "East", "W": "West"}
STATES = {
    "AL": "Alabama", "AK": "Alaska", "AZ": "Arizona", "AR": "Arkansas", "CA": "California", "CO": "Colorado",
    "CT": "Connecticut", "DE": "Delaware", "FL": "Florida", "GA": "Georgia", "HI": "Hawaii", "ID": "Idaho",
    "IL": "Illinois", "IN": "Indiana", "IA": "Iowa", "KS": "Kansas", "KY": "Kentucky", "LA": "Louisiana",
    "ME": "Maine", "MD": "Maryland", "MA": "Massachusetts", "MI": "Michigan", "MN": "Minnesota",
    "MS": "Mississippi", "MO": "Missouri", "MT": "Montana", "NE": "Nebraska", "NV": "Nevada",
    "NH": "New Hampshire", "NJ": "New Jersey", "NM": "New Mexico", "NY": "New York", "NC": "North Carolina",
    "ND": "North Dakota", "OH": "Ohio", "OK": "Oklahoma", "OR": "Oregon", "PA": "Pennsylvania",
    "RI": "Rhode Island", "SC": "South Carolina", "SD": "South Dakota", "TN": "Tennessee", "TX": "Texas",
    "UT": "Utah", "VT": "Vermont", "VA": "Virginia", "WA": "Washington", "WV": "West Virginia",
    "WI": "Wisconsin", "WY": "Wyoming", "DC": "D.C.",
}  # fmt: skip
STATES_LIKE_WORDS = (
    "AL",
    "AK",
    "CO",
    "DE",
    "HI",
    "ID",
    "IN",
    "LA",
    "MA",
    "ME",
    "MI",
    "MO",
    "OH",
    "OK",
    "OR",
    "PA",
)
"""Postal codes of states that are words or initials, too."""
ABBREVIATIONS = {
    "Mt.": "Mount", "Rev.": "Reverend", "Prof.": "Professor", "Capt.": "Captain",
    "Sgt.": "Sergeant", "Lt.": "Lieutenant", "Sen.": "Senator", "Gov.": "Governor", "Ph.D.": "PhD",
}  # fmt: skip
WEEKDAYS = {
    "Mon": "Monday", "Tue": "Tuesday", "Tues": "Tuesday", "Wed": "Wednesday", "Thu": "Thursday",
    "Thur": "Thursday", "Thurs": "Thursday", "Fri": "Friday", "Sat": "Saturday", "Sun": "Sunday",
}  # fmt: skip
_ROMAN = (
    "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII", "XIII", "XIV", "XV", "XVI",
    "XVII", "XVIII", "XIX", "XX",
)  # fmt: skip
ROMAN = {roman: number for number, roman in enumerate(_ROMAN, 1) if len(roman) > 1}
"""Roman numbers that are read where they stand alone; one letter is a letter."""
BEFORE_DATE = ("on", "due", "until", "since", "till")
"""Words after which two numbers with a stroke are month and day."""
