"""Portuguese: tables of numbers, units, currencies, signs and names."""

from __future__ import annotations

from cosyvoice_runtime.text.reading.languages.european import currencies, listed, months, units
from cosyvoice_runtime.text.reading.languages.language import Unit

SMALL = listed(
    """zero um dois três quatro cinco seis sete oito nove dez onze doze treze catorze quinze dezesseis
    dezessete
    dezoito dezenove"""
)
TENS = listed("""vinte trinta quarenta cinquenta sessenta setenta oitenta noventa""")
HUNDREDS = listed(
    """cento duzentos trezentos quatrocentos quinhentos seiscentos setecentos oitocentos novecentos"""
)
LARGE = [
    ("milhão", "milhões"), ("bilhão", "bilhões"), ("trilhão", "trilhões"), ("quatrilhão", "quatrilhões"),
    ("quintilhão", "quintilhões"), ("sextilhão", "sextilhões"), ("septilhão", "septilhões"),
]  # fmt: skip
ORDINALS = listed("""primeiro segundo terceiro quarto quinto sexto sétimo oitavo nono""")
TENTHS = listed(
    """décimo vigésimo trigésimo quadragésimo quinquagésimo sexagésimo septuagésimo octogésimo nonagésimo"""
)
HUNDREDTHS = listed(
    """centésimo ducentésimo tricentésimo quadringentésimo quingentésimo sexcentésimo septingentésimo
    octingentésimo noningentésimo"""
)
PARTS = {2: "meio", 3: "terço", 1000: "milésimo"}
MONTH_WORDS = listed(
    """janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro"""
)
MONTHS = months(
    MONTH_WORDS,
    {
        "jan": 1, "fev": 2, "mar": 3, "abr": 4, "mai": 5, "jun": 6, "jul": 7, "ago": 8, "set": 9, "out": 10,
        "nov": 11, "dez": 12,
    },
)  # fmt: skip
_PREFIXES = {
    "n": "nano", "µ": "micro", "m": "mili", "c": "centi", "d": "deci", "h": "hecto", "k": "quilo",
    "K": "quilo",
    "M": "mega", "G": "giga", "T": "tera", "P": "peta",
}  # fmt: skip
UNITS = units(
    {
        "m": "metro/metros", "km": "quilômetro/quilômetros", "dm": "decímetro/decímetros",
        "cm": "centímetro/centímetros", "mm": "milímetro/milímetros", "µm": "micrômetro/micrômetros",
        "nm": "nanômetro/nanômetros", "g": "grama/gramas", "l L": "litro/litros", "s": "segundo/segundos",
        "B": "byte/bytes", "bit": "bit/bits", "Hz": "hertz/hertz", "W": "watt/watts",
        "Wh": "watt-hora/watts-hora", "V": "volt/volts", "A": "ampere/amperes",
        "Ah": "ampere-hora/amperes-hora",
        "Pa": "pascal/pascals", "J": "joule/joules", "cal": "caloria/calorias/f", "Ω": "ohm/ohms",
        "N": "newton/newtons", "mol": "mol/mols", "bar": "bar/bars", "t": "tonelada/toneladas/f",
        "ha": "hectare/hectares", "min": "minuto/minutos", "h hs": "hora/horas/f",
        "seg": "segundo/segundos",
        "dB": "decibel/decibéis", "%": "por cento/por cento", "‰": "por mil/por mil", "°": "grau/graus",
        "°C ℃ ºC °_C": "grau Celsius/graus Celsius", "°F ℉ ºF": "grau Fahrenheit/graus Fahrenheit",
        "cv": "cavalo/cavalos", "mi": "milha/milhas/f", "ft": "pé/pés", "lb lbs": "libra/libras/f",
        "oz": "onça/onças/f", "px": "pixel/pixels", "x": "vezes/vezes/f", "kB": "kilobyte/kilobytes",
        "KB": "kilobyte/kilobytes",
        "l/100_km l/100km L/100_km": "litro a cada cem quilômetros/litros a cada cem quilômetros",
        "mmHg": "milímetro de mercúrio/milímetros de mercúrio",
        "mph": "milha por hora/milhas por hora/f",
        "Mbps": "megabit por segundo/megabits por segundo",
        "Gbps": "gigabit por segundo/gigabits por segundo",
    },
    _PREFIXES,
    {2: ("{} quadrado", "{} quadrados"), 3: ("{} cúbico", "{} cúbicos")},
)  # fmt: skip
PER_UNITS = {sign: UNITS[sign] for sign in listed("s min h km m kg g l L m² m³ kWh ha")} | {
    word: Unit(word, f"{word}s")
    for word in ("dia", "ano", "semana", "hora", "pessoa", "noite", "unidade")
} | {"mês": Unit("mês", "meses"), "hab": Unit("habitante", "habitantes")}  # fmt: skip
SCALES = {
    word: word
    for word in listed("milhão milhões bilhão bilhões trilhão trilhões mil")
} | {"mi": "milhões", "bi": "bilhões", "tri": "trilhões"}  # fmt: skip
SINGLE_SCALES = {many: one for one, many in LARGE}
CURRENCIES = currencies(
    {
        "R$ BRL real reais": ("real/reais", "centavo/centavos"),
        "€ EUR eur euro euros": ("euro/euros", "cêntimo/cêntimos"),
        "$ US$ USD dólar dólares": ("dólar/dólares", "centavo/centavos"),
        "£ GBP": ("libra/libras/f", "pêni/pence"),
        "CHF": ("franco suíço/francos suíços", "cêntimo/cêntimos"),
        "¥ JPY": ("iene/ienes", ""),
        "CNY RMB": ("yuan/yuans", ""),
        "₩ KRW": ("won/wons", ""),
        "₹ INR": ("rúpia/rúpias/f", ""),
        "₽ RUB": ("rublo/rublos", "copeque/copeques"),
        "ARS": ("peso argentino/pesos argentinos", "centavo/centavos"),
        "AOA": ("kwanza/kwanzas", ""),
        "MZN": ("metical/meticais", ""),
        "₿ BTC": ("bitcoin/bitcoins", ""),
    }
)
SHORT_WEEKDAYS = {
    "seg": "segunda", "ter": "terça", "qua": "quarta", "qui": "quinta", "sex": "sexta", "sáb": "sábado",
    "sab": "sábado", "dom": "domingo",
}  # fmt: skip
SIGNS = {
    ".": "ponto", "/": "barra", "\\": "barra invertida", "@": "arroba", "-": "hífen", "_": "sublinhado",
    ":": "dois pontos", "?": "interrogação", "=": "igual", "&": "e", "#": "cerquilha", "%": "por cento",
    "+": "mais", "~": "til",
}  # fmt: skip
SIGNS_BEFORE = {
    "-": "menos", "−": "menos", "+": "mais", "~": "cerca de", "#": "número", "≈": "cerca de",
    "≤": "no máximo",
    "≥": "no mínimo", "±": "mais ou menos", "<": "menos de", ">": "mais de",
}  # fmt: skip
OPERATIONS = {
    "+": "mais", "-": "menos", "−": "menos", "–": "menos", "=": "é igual a", "==": "é igual a",
    "×": "vezes",
    "*": "vezes", "÷": "dividido por", "/": "dividido por", "<": "é menor que", ">": "é maior que",
    "≈": "é aproximadamente igual a", "≠": "é diferente de", "!=": "é diferente de",
    "≤": "é menor ou igual a", "<=": "é menor ou igual a", "≥": "é maior ou igual a",
    ">=": "é maior ou igual a",
    "±": "mais ou menos",
}  # fmt: skip
ABBREVIATIONS = {
    "Sr.": "senhor", "Sra.": "senhora", "Srta.": "senhorita", "Dr.": "doutor", "Dra.": "doutora",
    "Prof.": "professor", "Profa.": "professora", "Eng.": "engenheiro", "p. ex.": "por exemplo",
    "p.ex.": "por exemplo", "etc.": "et cetera", "pág.": "página", "págs.": "páginas", "nº": "número",
    "n.º": "número", "Nº": "número", "tel.": "telefone", "Tel.": "telefone", "av.": "avenida",
    "Av.": "avenida",
    "R.": "rua", "cap.": "capítulo", "art.": "artigo", "a.a.": "ao ano", "a. a.": "ao ano",
    "a.m.": "ao mês", "Aprox.": "Aproximadamente", "apto.": "apartamento",
    "ap.": "apartamento", "D.": "dom", "p.": "página", "km.": "quilômetro",
    "Exmo.": "excelentíssimo", "qtd.": "quantidade", "aprox.": "aproximadamente", "máx.": "máximo",
    "mín.": "mínimo", "a.C.": "antes de Cristo", "d.C.": "depois de Cristo", "a. C.": "antes de Cristo",
    "d. C.": "depois de Cristo", "séc.": "século", "vs.": "contra", "fig.": "figura", "Fig.": "figura",
    "EUA": "Estados Unidos", "Ltda.": "limitada",
}  # fmt: skip
MASCULINE = frozenset(
    listed(
        """dia dias mapa mapas problema problemas tema temas sistema sistemas programa programas idioma
        idiomas
        clima planeta planetas grama gramas diagrama esquema artista artistas turista turistas"""
    )
)
NOT_COUNTED = frozenset(
    listed(
        """a à ao aos as às com contra da das de desde do dos durante em entre é são foi era está para pela
        pelo
        por sem sob sobre na nas no nos e ou nem que como quando onde se não o os um uma mais menos mas já
        também
        muito cada tem há ser cuja meia quarto até"""
    )
)
"""Words after a number that it does not count."""
RULERS = frozenset(
    listed(
        """pedro joão luís carlos filipe henrique jorge isabel maria papa rei rainha paulo bento pio manuel
        afonso
        napoleão catarina francisco sebastião josé"""
    )
)
QUEENS = frozenset({"isabel", "maria", "rainha", "catarina"})
BEFORE_ROMAN = frozenset(
    listed("""século séculos séc capítulo tomo volume parte ato cena título anexo artigo fase guerra""")
)
