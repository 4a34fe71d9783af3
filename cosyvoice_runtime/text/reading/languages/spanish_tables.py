"""Spanish: tables of numbers, units, currencies, signs and names."""

from __future__ import annotations

from cosyvoice_runtime.text.reading.languages.european import currencies, listed, months, units
from cosyvoice_runtime.text.reading.languages.language import Unit

SMALL = listed(
    """cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis
    diecisiete dieciocho diecinueve veinte veintiuno veintidós veintitrés veinticuatro veinticinco
    veintiséis veintisiete veintiocho veintinueve"""
)
TENS = ["treinta", "cuarenta", "cincuenta", "sesenta", "setenta", "ochenta", "noventa"]
HUNDREDS = listed(
    """ciento doscientos trescientos cuatrocientos quinientos seiscientos setecientos ochocientos
    novecientos"""
)
LARGE = [
    ("millón", "millones"),
    ("billón", "billones"),
    ("trillón", "trillones"),
    ("cuatrillón", "cuatrillones"),
]
ORDINALS = ["primero", "segundo", "tercero", "cuarto", "quinto", "sexto", "séptimo", "octavo", "noveno"]
TENTHS = listed(
    """décimo vigésimo trigésimo cuadragésimo quincuagésimo sexagésimo septuagésimo octogésimo nonagésimo"""
)
HUNDREDTHS = listed(
    """centésimo ducentésimo tricentésimo cuadringentésimo quingentésimo sexcentésimo septingentésimo
    octingentésimo noningentésimo"""
)
MILLIONTH = "millonésimo"
PARTS = {
    3: "tercio", 4: "cuarto", 5: "quinto", 6: "sexto", 7: "séptimo", 8: "octavo", 9: "noveno", 10: "décimo",
    100: "centésimo", 20: "veinteavo",
}  # fmt: skip
MONTH_WORDS = listed(
    """enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre"""
)
MONTHS = months(
    MONTH_WORDS,
    {
        "setiembre": 9, "ene": 1, "feb": 2, "mar": 3, "abr": 4, "jun": 6, "jul": 7, "ago": 8, "sep": 9,
        "sept": 9, "oct": 10, "nov": 11, "dic": 12,
    },
)  # fmt: skip
_PREFIXES = {
    "n": "nano", "µ": "micro", "m": "mili", "c": "centi", "d": "deci", "h": "hecto", "k": "kilo",
    "K": "kilo",
    "M": "mega", "G": "giga", "T": "tera", "P": "peta",
}  # fmt: skip
UNITS = units(
    {
        "m": "metro/metros", "km": "kilómetro/kilómetros", "dm": "decímetro/decímetros",
        "cm": "centímetro/centímetros", "mm": "milímetro/milímetros", "µm": "micrómetro/micrómetros",
        "nm": "nanómetro/nanómetros", "g": "gramo/gramos", "l L": "litro/litros", "s": "segundo/segundos",
        "B": "byte/bytes", "bit": "bit/bits", "Hz": "hercio/hercios", "W": "vatio/vatios",
        "Wh": "vatio hora/vatios hora", "V": "voltio/voltios", "A": "amperio/amperios",
        "Ah": "amperio hora/amperios hora", "Pa": "pascal/pascales", "J": "julio/julios",
        "cal": "caloría/calorías/f", "Ω": "ohmio/ohmios", "N": "newton/newtons", "mol": "mol/moles",
        "bar": "bar/bares", "t": "tonelada/toneladas/f", "ha": "hectárea/hectáreas/f",
        "min min.": "minuto/minutos", "h hrs": "hora/horas/f", "seg seg.": "segundo/segundos",
        "dB": "decibelio/decibelios", "%": "por ciento/por ciento", "‰": "por mil/por mil",
        "°": "grado/grados", "°C ℃ ºC °_C": "grado Celsius/grados Celsius",
        "°k °K °_K °_k": "grado kelvin/grados kelvin",
        "°F ℉ ºF °_F": "grado Fahrenheit/grados Fahrenheit",
        "kph kmh": "kilómetro por hora/kilómetros por hora",
        "mph": "milla por hora/millas por hora/f", "mi": "milla/millas/f", "ft": "pie/pies",
        "lb lbs": "libra/libras/f", "oz": "onza/onzas/f", "px": "píxel/píxeles", "CV": "caballo/caballos",
        "cdas. cda.": "cucharada/cucharadas/f", "cdtas. cdta. cdita. cditas.": "cucharadita/cucharaditas/f",
        "l/100_km l/100km": "litro a los cien kilómetros/litros a los cien kilómetros",
        "mmHg": "milímetro de mercurio/milímetros de mercurio", "uds. uds": "unidad/unidades/f",
        "Mbps": "megabit por segundo/megabits por segundo",
        "Gbps": "gigabit por segundo/gigabits por segundo",
    },
    _PREFIXES,
    {2: ("{} cuadrado", "{} cuadrados"), 3: ("{} cúbico", "{} cúbicos")},
)  # fmt: skip
PER_UNITS = {sign: UNITS[sign] for sign in ("s", "min", "h", "km", "m", "kg", "g", "l", "m²", "m³", "kWh",
"ha")} | {
    "día": Unit("día", "días"), "mes": Unit("mes", "meses"), "año": Unit("año", "años"),
    "semana": Unit("semana", "semanas"), "hora": Unit("hora", "horas"), "persona": Unit("persona",
    "personas"),
    "noche": Unit("noche", "noches"), "unidad": Unit("unidad", "unidades"), "hab": Unit("habitante",
    "habitantes"),
}  # fmt: skip
HALVES = {"am": "de la mañana", "pm": "de la tarde"}
SCALES = {
    word: word
    for word in ("millón", "millones", "billón", "billones", "trillón", "trillones", "mil", "mil millones")
} | {"M": "millones"}  # fmt: skip
SINGLE_SCALES = {many: one for one, many in LARGE}
CURRENCIES = currencies(
    {
        "€ EUR eur euro euros": ("euro/euros", "céntimo/céntimos"),
        "$ dólar dólares": ("dólar/dólares", "centavo/centavos"),
        "US$ USD usd": ("dólar estadounidense/dólares estadounidenses", "centavo/centavos"),
        "HK$ HKD hkd": ("dólar de Hong Kong/dólares de Hong Kong", "centavo/centavos"),
        "TTD ttd": ("dólar de Trinidad y Tobago/dólares de Trinidad y Tobago", "centavo/centavos"),
        "MX$ mex$ MXN mxn": ("peso mexicano/pesos mexicanos", "centavo/centavos"),
        "ARS ars": ("peso argentino/pesos argentinos", "centavo/centavos"),
        "CLP clp": ("peso chileno/pesos chilenos", "centavo/centavos"),
        "COP cop": ("peso colombiano/pesos colombianos", "centavo/centavos"),
        "BOP bop": ("peso boliviano/pesos bolivianos", "centavo/centavos"),
        "PEN pen": ("sol/soles", "céntimo/céntimos"),
        "NIO nio": ("córdoba/córdobas/f", "centavo/centavos"),
        "CRC crc": ("colón costarricense/colones costarricenses", "céntimo/céntimos"),
        "HNL hnl": ("lempira/lempiras", "centavo/centavos"),
        "GTQ gtq": ("quetzal/quetzales", "centavo/centavos"),
        "£ GBP gbp": ("libra/libras/f", "penique/peniques"),
        "CHF chf": ("franco suizo/francos suizos", "céntimo/céntimos"),
        "fr": ("franco/francos", "céntimo/céntimos"),
        "¥ JPY jpy": ("yen/yenes", "centavo/centavos"),
        "CNY RMB": ("yuan/yuanes", ""),
        "₩ KRW krw": ("won/wones", ""),
        "₹ INR Rs rs": ("rupia/rupias/f", "paisa/paisas/f"),
        "R$ r$ BRL brl": ("real/reales", "centavo/centavos"),
        "kr SEK DKK NOK": ("corona/coronas/f", ""),
        "ptas pts": ("peseta/pesetas/f", "céntimo/céntimos"),
        "₽ RUB": ("rublo/rublos", "kopek/kopeks"),
        "₿ BTC": ("bitcoin/bitcoins", ""),
        "pesos": ("peso/pesos", "centavo/centavos"),
    }
)
SHORT_WEEKDAYS = {
    "lun": "lunes", "mar": "martes", "mié": "miércoles", "mie": "miércoles", "jue": "jueves",
    "vie": "viernes", "sáb": "sábado", "sab": "sábado", "dom": "domingo",
}  # fmt: skip
SIGNS = {
    ".": "punto", "/": "barra", "\\": "barra invertida", "@": "arroba", "-": "guion", "_": "guion bajo",
    ":": "dos puntos", "?": "interrogación", "=": "igual", "&": "y", "#": "almohadilla", "%": "por ciento",
    "+": "más", "~": "tilde", "|": "barra vertical", "!": "exclamación",
}  # fmt: skip
SIGNS_BEFORE = {
    "-": "menos", "−": "menos", "+": "más", "~": "unos", "#": "número", "≈": "unos", "≤": "como máximo",
    "≥": "al menos", "±": "más menos", "<": "menos de", ">": "más de",
}  # fmt: skip
OPERATIONS = {
    "+": "más", "-": "menos", "−": "menos", "–": "menos", "=": "es igual a", "==": "es igual a", "×": "por",
    "*": "por", "÷": "dividido entre", "/": "dividido entre", "<": "es menor que", ">": "es mayor que",
    "≈": "es aproximadamente igual a", "≠": "es distinto de", "!=": "es distinto de",
    "≤": "es menor o igual que",
    "<=": "es menor o igual que", "≥": "es mayor o igual que", ">=": "es mayor o igual que",
    "±": "más menos",
}  # fmt: skip
ABBREVIATIONS = {
    "Sr.": "señor", "Sra.": "señora", "Srta.": "señorita", "Dr.": "doctor", "Dra.": "doctora",
    "dr.": "doctor",
    "dra.": "doctora", "sr.": "señor", "sra.": "señora", "D.": "don", "Ud.": "usted", "Uds.": "ustedes",
    "p. ej.": "por ejemplo", "p.ej.": "por ejemplo", "etc.": "etcétera", "pág.": "página",
    "págs.": "páginas",
    "núm.": "número", "n.º": "número", "nº": "número", "N.º": "número", "Nº": "número",
    "min.": "minuto", "Aprox.": "Aproximadamente", "pág": "página", "apdo.": "apartado", "dcha.": "derecha",
    "izda.": "izquierda",
    "izq.": "izquierda", "km.": "kilómetro", "tfno.": "teléfono", "Tfno.": "teléfono", "Vd.": "usted",
    "S.A.": "ese a", "p.": "página",
    "aprox.": "aproximadamente",
    "máx.": "máximo", "mín.": "mínimo", "tel.": "teléfono", "Tel.": "teléfono", "pza.": "plaza",
    "Pza.": "plaza",
    "avda.": "avenida", "Avda.": "avenida", "Av.": "avenida", "C/": "calle", "esq.": "esquina",
    "cap.": "capítulo",
    "art.": "artículo", "ee. uu.": "estados unidos", "EE. UU.": "Estados Unidos",
    "EE.UU.": "Estados Unidos",
    "a. C.": "antes de Cristo", "d. C.": "después de Cristo", "a.C.": "antes de Cristo",
    "d.C.": "después de Cristo", "s.": "siglo", "vs.": "contra", "Prof.": "profesor", "Fig.": "figura",
    "EC": "era común",
}  # fmt: skip
RULERS = frozenset(
    listed("""felipe carlos alfonso fernando luis juan pablo benedicto pío enrique jorge
isabel maría napoleón pedro
    alejandro francisco papa rey reina catalina guillermo""")
)
QUEENS = frozenset({"isabel", "maría", "reina", "catalina"})
BEFORE_ROMAN = frozenset(
    listed("siglo siglos s capítulo tomo volumen parte acto título anexo artículo fase guerra")
)
MASCULINE = frozenset(
    listed("""día días mapa mapas problema problemas tema temas sistema sistemas programa
programas idioma
    idiomas clima
    planeta planetas gramas diagrama esquema esquemas poeta artista artistas turista turistas""")
)
NOT_COUNTED = frozenset(
    listed("""a al ante con contra de del desde durante en entre es son fue era está
hacia hasta para por
    según sin sobre
    y e o u ni que como cuando donde si no se le les lo la las los el un una más menos pero ya también muy
    cada
    ha han he hay ser cuya media cuarto""")
)
"""Words after a number that it does not count."""
