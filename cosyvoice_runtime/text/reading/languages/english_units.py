"""English: units of measurement, and what an amount may be for each of."""

from __future__ import annotations

from collections.abc import Mapping

from cosyvoice_runtime.text.reading.languages import english_words as listed
from cosyvoice_runtime.text.reading.languages.language import Unit

_BELOW = {
    "mol·K": "mole kelvin", "kg·K": "kilogram kelvin", "g·K": "gram kelvin", "m·K": "meter kelvin",
    "kg·°C": "kilogram degree Celsius", "g·°C": "gram degree Celsius", "m²·K": "square meter kelvin",
}  # fmt: skip
"""Products of units below a stroke."""


def _units() -> dict[str, Unit]:
    """Units with their plurals: those in ``-s`` first."""
    plural = {
        "mm": "millimeter", "cm": "centimeter", "dm": "decimeter", "m": "meter", "km": "kilometer",
        "nm": "nanometer", "yd": "yard", "mi": "mile", "mile": "mile", "miles": "mile",
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
        "N": "newton", "Nm": "newton meter", "N·m": "newton meter", "N⋅m": "newton meter",
        "kN·m": "kilonewton meter", "kW·h": "kilowatt hour", "Pa·s": "pascal second", "J·s": "joule second",
        "mol": "mole", "mmol": "millimole", "px": "pixel",
        "tbsp": "tablespoon", "tsp": "teaspoon", "Ω": "ohm", "kΩ": "kilohm", "day": "day", "week": "week",
        "month": "month", "year": "year", "tbsps": "tablespoon", "Tbsp": "tablespoon", "tsps": "teaspoon",
        "yds": "yard", "cup": "cup", "cups": "cup", "gals": "gallon", "qt": "quart", "qts": "quart",
        "pt": "pint", "pts": "point", "reb": "rebound", "rebs": "rebound", "ast": "assist", "asts": "assist",
        "stl": "steal", "blk": "block",
        "fl oz": "fluid ounce", "yr": "year", "yrs": "year", "wk": "week",
        "wks": "week", "mos": "month", "ac": "acre", "mo": "month", "ly": "light year", "pc": "parsec",
        "kpc": "kiloparsec", "Mpc": "megaparsec", "nmi": "nautical mile", "kn": "knot", "kt": "knot",
        "kts": "knot", "lm": "lumen", "KiB": "kibibyte", "MiB": "mebibyte", "GiB": "gibibyte",
        "TiB": "tebibyte", "EB": "exabyte", "Mb": "megabit", "Gb": "gigabit", "kb": "kilobit",
        "eV": "electronvolt", "keV": "kiloelectronvolt", "MeV": "megaelectronvolt",
        "GeV": "gigaelectronvolt", "TeV": "teraelectronvolt", "µF": "microfarad", "nF": "nanofarad",
        "pF": "picofarad", "mH": "millihenry", "kVA": "kilovolt amp", "mSv": "millisievert",
        "µSv": "microsievert", "kN": "kilonewton", "MP": "megapixel", "MΩ": "megohm", "mΩ": "milliohm",
        "mbar": "millibar", "atm": "atmosphere", "mEq": "milliequivalent", "GWh": "gigawatt hour",
        "TWh": "terawatt hour", "TW": "terawatt", "µW": "microwatt", "ps": "picosecond", "ng": "nanogram",
        "pg": "picogram", "nmol": "nanomole", "µmol": "micromole", "µl": "microliter", "µL": "microliter",
        "µm": "micrometer", "MJ": "megajoule", "GJ": "gigajoule", "µV": "microvolt", "µA": "microamp",
        "IU": "international unit", "req": "request", "reqs": "request", "tok": "token", "toks": "token",
        "msg": "message", "msgs": "message",
        "N·s": "newton second", "Bq": "becquerel", "kBq": "kilobecquerel", "MBq": "megabecquerel",
        "Gy": "gray",
    }  # fmt: skip
    same = {
        "Hz": "hertz", "kHz": "kilohertz", "MHz": "megahertz", "GHz": "gigahertz", "THz": "terahertz",
        "ppm": "parts per million", "ppb": "parts per billion", "rpm": "RPM", "fps": "FPS", "bpm": "BPM",
        "dpi": "DPI", "psi": "PSI", "mmHg": "millimeters of mercury", "inHg": "inches of mercury",
        "%": "percent", "‰": "per mille",
        "mM": "millimolar",
        "µM": "micromolar", "nM": "nanomolar", "pp": "percentage points", "bps": "bits per second",
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
        "bd": Unit("bedroom", "bedroom"),
        "ba": Unit("bath", "bath"),
        "sf": Unit("square foot", "square feet"),
        "BR": Unit("bedroom", "bedroom"),
        "BA": Unit("bath", "bath"),
        "hp": Unit("horsepower", "horsepower"),
        "sq mi": Unit("square mile", "square miles"),
        "sq km": Unit("square kilometer", "square kilometers"),
        "sq m": Unit("square meter", "square meters"),
        "cu ft": Unit("cubic foot", "cubic feet"),
        "cu yd": Unit("cubic yard", "cubic yards"),
        "cu in": Unit("cubic inch", "cubic inches"),
        "sq in": Unit("square inch", "square inches"),
        "sq yd": Unit("square yard", "square yards"),
        "ft-lbs": Unit("foot pound", "foot pounds"),
        "ft lbs": Unit("foot pound", "foot pounds"),
        "lb ft": Unit("pound foot", "pound feet"),
        "in-lb": Unit("inch pound", "inch pounds"),
        "in-lbs": Unit("inch pound", "inch pounds"),
        "ft-lb": Unit("foot pound", "foot pounds"),
        "lb-ft": Unit("pound foot", "pound feet"),
        "ft·lb": Unit("foot pound", "foot pounds"),
        "lb·ft": Unit("pound foot", "pound feet"),
        "bbl": Unit("barrel", "barrels"),
        "mpg": Unit("mile per gallon", "miles per gallon"),
    }
    odd |= {
        written: Unit(f"{one} per {other}", f"{one}s per {other}")
        for sign, one in {"J": "joule", "kJ": "kilojoule", "W": "watt", "L·atm": "liter atmosphere"}.items()
        for below, other in _BELOW.items()
        for written in (f"{sign}/({below})", f"{sign}/{below}")
    }
    for sign, one in {"kg·m/s": "kilogram meter", "kg·m/s²": "kilogram meter"}.items():
        squared = " squared" if sign.endswith("²") else ""
        odd[sign] = Unit(f"{one} per second{squared}", f"{one}s per second{squared}")
    odd["N·m²/kg²"] = Unit(
        "newton meter squared per kilogram squared", "newton meters squared per kilogram squared"
    )
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


def _durations(units: Mapping[str, Unit]) -> dict[str, Unit]:
    """Units of durations; there m is minutes."""
    signs = ("ms", "s", "sec", "secs", "min", "mins", "h", "hr", "hrs")
    return {sign: units[sign] for sign in signs} | {"m": units["min"], "d": units["day"]}


def _per(units: Mapping[str, Unit]) -> dict[str, Unit]:
    """Units, and words of time and people, that an amount is for each of."""
    signs = {sign: unit for sign, unit in units.items() if sign not in ("%", "‰", "pp", "in", "A")}
    more = {
        **{f"s{power}": Unit("second squared", "seconds squared") for power in ("²", "2", "^2")},
        "yr": Unit("year", "years"),
        "mo": Unit("month", "months"),
        "wk": Unit("week", "weeks"),
        "d": Unit("day", "days"),
        "sq. ft": units["sq ft"],
        "cu. ft": units["cu ft"],
        "cu. yd": units["cu yd"],
    }
    return signs | {word: Unit(word, f"{word}s") for word in sorted(listed.PER_WORDS)} | more


UNITS = _units()
PER_UNITS = _per(UNITS)
GLUED_UNITS = (
    "A", "in", "t", "h", "N", "J", "d", "cc", "pp", "day", "week", "month", "year", "mile", "pc", "kn", "kt",
    "mo", "pt", "ps", "pg", "atm", "MP", "Mb", "Gb", "kb",
)  # fmt: skip
"""Units that count only right after their number, since they are words or abbreviations, too."""
FORMULA_UNITS = {sign: UNITS[sign] for sign in ("N", "J", "A", "h")} | {
    "C": Unit("coulomb", "coulombs"), "K": Unit("kelvin", "kelvin"), "T": Unit("tesla", "teslas"),
    "F": Unit("farad", "farads"), "H": Unit("henry", "henries"), "Wb": Unit("weber", "webers"),
    "M": Unit("molar", "molar"),
}  # fmt: skip
"""Units that count after a space only where a formula ends."""
TIME_UNITS = _durations(UNITS)
_UNJOINED = (*GLUED_UNITS, "s", "V", "L", "miles", "pts", "m2", "m3")
HYPHEN_UNITS = (
    "in", "cc", "hp", "MP", "sq ft", "fl oz",
    *(sign for sign in UNITS if sign.isalnum() and sign not in _UNJOINED),
)  # fmt: skip
"""Units that a hyphen may join to their number."""
