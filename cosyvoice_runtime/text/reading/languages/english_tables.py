"""English: tables of units, currencies, signs and names."""

from __future__ import annotations

from cosyvoice_runtime.text.reading.languages.language import Currency

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
    "b": "billion", "B": "billion", "tn": "trillion", "T": "trillion", "MM": "million",
    **{word: word for word in ("hundred", "thousand", "million", "billion", "trillion", "lakh", "crore")},
    "lakhs": "lakh", "crores": "crore",
}  # fmt: skip
SIGNS = {
    ".": "dot", "/": "slash", "\\": "backslash", "@": "at", "-": "dash", "_": "underscore", ":": "colon",
    "?": "question mark", "=": "equals", "&": "and", "#": "hash", "%": "percent", "+": "plus", "~": "tilde",
}  # fmt: skip
SIGNS_BEFORE = {
    "-": "minus", "−": "minus", "+": "plus", "~": "about", "#": "number", "№": "number", "≈": "about",
    "≤": "at most", "≥": "at least", "±": "plus or minus", "<": "less than", ">": "more than",
    "<=": "at most", ">=": "at least",
}  # fmt: skip
OPERATIONS = {
    "+": "plus", "-": "minus", "−": "minus", "–": "minus", "=": "equals", "==": "equals", "×": "times",
    "*": "times", "÷": "divided by", "/": "divided by", "<": "is less than", ">": "is greater than",
    "≈": "is about", "≠": "is not equal to", "!=": "is not equal to", "≤": "is at most", "<=": "is at most",
    "≥": "is at least", ">=": "is at least", "±": "plus or minus",
}  # fmt: skip


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
        **{sign: Currency("krone", "kroner") for sign in ("kr", "DKK", "NOK")},
        **{sign: Currency("zloty", "zlotys", "grosz", "groszy") for sign in ("PLN", "zł")},
        **{sign: Currency("koruna", "korunas") for sign in ("CZK", "Kč")},
        **{sign: Currency("rupee", "rupees", "paisa", "paise") for sign in ("Rs", "Rs.", "PKR", "LKR")},
        **{sign: Currency("rupiah", "rupiah") for sign in ("IDR", "Rp")},
        "HUF": Currency("forint", "forints"),
        "ZAR": Currency("rand", "rand", "cent", "cents"),
        "TRY": Currency("lira", "lira"),
        "THB": Currency("baht", "baht"),
        "VND": Currency("dong", "dong"),
        "PHP": Currency("peso", "pesos", "centavo", "centavos"),
        "MYR": Currency("ringgit", "ringgit", "sen", "sen"),
        "SAR": Currency("riyal", "riyals"),
        "AED": Currency("dirham", "dirhams"),
        "ILS": Currency("shekel", "shekels"),
        "NGN": Currency("naira", "naira"),
        "UAH": Currency("hryvnia", "hryvnias"),
        "BTC": Currency("bitcoin", "bitcoin"),
        "₸": Currency("tenge", "tenge"),
        "₾": Currency("lari", "lari"),
        "₵": Currency("cedi", "cedis"),
        "₡": Currency("colón", "colones"),
        "CN¥": Currency("yuan", "yuan"),
    }


CURRENCIES = _currencies()
STREETS = {
    "Sts": "Streets", "Aves": "Avenues",
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
    "hwy": "highway", "t-storms": "thunderstorms", "T-storms": "Thunderstorms", "wk": "week", "wks": "weeks",
    "wk.": "week", "wks.": "weeks", "hr": "hour", "hrs": "hours", "hrs.": "hours", "yrs": "years",
    "lbs": "pounds", "Req.": "Requisition", "mins": "minutes", "secs": "seconds", "mos.": "months",
    "mvt.": "movement", "mvt": "movement",
    "ppl": "people", "esp.": "especially", "esp": "especially",
    "flr": "floor", "def.": "defeated", "ea.": "each", "btn": "button", "btn.": "button",
    "per cap.": "per capita",
    "Bus. & Prof.": "Business and Professions", "temps.": "temperatures",
    "qty": "quantity", "pkg": "package", "pkgs": "packages", "avg": "average",
    "Avg": "Average", "dept": "department", "Dept": "Department", "govt": "government", "appt": "appointment",
    "Appt": "Appointment", "appts": "appointments", "mgmt": "management", "mgr": "manager",
    "o.c.": "on center", "O.C.": "on center", "Hwy.": "Highway", "hwy.": "highway", "qty.": "quantity",
    "Qty.": "Quantity", "appt.": "appointment", "Appt.": "Appointment",
    "Mt.": "Mount", "Prof.": "Professor", "Capt.": "Captain",
    "Sgt.": "Sergeant", "Lt.": "Lieutenant", "Sen.": "Senator", "Gov.": "Governor", "Ph.D.": "PhD",
    "approx.": "approximately", "Approx.": "Approximately", "avg.": "average", "Avg.": "Average",
    "dept.": "department", "Dept.": "Department", "govt.": "government", "w/o": "without", "w/": "with",
    "w/in": "within", "b/c": "because", "b/w": "between", "c/o": "care of", "Qty": "Quantity",
    "incl.": "including",
    "excl.": "excluding", "Rte.": "Route", "lvl": "level", "yr.": "year", "yrs.": "years",
    "Lvl": "Level", "Incl.": "Including", "Excl.": "Excluding", "W/o": "Without", "W/": "With",
    "Pop.": "Population", "mpg": "miles per gallon", "mph": "miles per hour",
    "YoY": "year over year", "QoQ": "quarter over quarter", "MoM": "month over month", "YTD": "year to date",
    "y/y": "year over year", "q/q": "quarter over quarter", "m/m": "month over month", "EOD": "end of day",
    "EOW": "end of week", "EOM": "end of month", "COB": "close of business",
    "vs.": "versus", "vs": "versus",
    "vit.": "vitamin", "Vit.": "Vitamin", "pkg.": "package", "pkgs.": "packages",
    "doz.": "dozen", "wt.": "weight", "ht.": "height", "Wt.": "Weight",
    "Ht.": "Height", "%ile": "percentile", "Mkt cap": "Market cap", "Rm.": "Room",
    "WWI": "World War One", "WWII": "World War Two",
    "misc.": "miscellaneous", "Ctrl": "Control", "Assoc.": "Associate",
}  # fmt: skip
WEEKDAYS = {
    "Mon": "Monday", "Tue": "Tuesday", "Tues": "Tuesday", "Wed": "Wednesday", "Weds": "Wednesday",
    "Thu": "Thursday",
    "Thur": "Thursday", "Thurs": "Thursday", "Fri": "Friday", "Sat": "Saturday", "Sun": "Sunday",
}  # fmt: skip
_ROMAN = (
    "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII", "XIII", "XIV", "XV", "XVI",
    "XVII", "XVIII", "XIX", "XX",
)  # fmt: skip
ROMAN = {roman: number for number, roman in enumerate(_ROMAN, 1) if len(roman) > 1}
"""Roman numbers that are read where they stand alone; one letter is a letter."""
BEFORE_DATE = ("on", "due", "thru", "airs", "premieres", "until", "since", "till", "eod", "cob", "eow")
"""Words after which two numbers with a stroke are month and day."""
