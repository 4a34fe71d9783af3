"""English: signs and functions of mathematics outside of plain formulae: ``sin(30°) = 1/2``, ``|x| < 5``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cosyvoice_runtime.text.reading.languages import english_algebra as algebra
from cosyvoice_runtime.text.reading.languages import english_words as listed
from cosyvoice_runtime.text.reading.languages.brackets import in_factor
from cosyvoice_runtime.text.reading.languages.exponents import power_of
from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

if TYPE_CHECKING:
    from cosyvoice_runtime.text.reading.languages.language import Language

_FUNCTIONS = {
    "sin": "sine", "cos": "cosine", "tan": "tangent", "cot": "cotangent", "sec": "secant", "csc": "cosecant",
    "arcsin": "arc sine", "arccos": "arc cosine", "arctan": "arc tangent", "sinh": "hyperbolic sine",
    "cosh": "hyperbolic cosine", "tanh": "hyperbolic tangent", "ln": "natural log", "log": "log",
    "exp": "exponential", "lim": "limit", "det": "determinant", "gcd": "greatest common divisor",
    "lcm": "least common multiple", "sqrt": "square root", "abs": "absolute value",
}  # fmt: skip
_FUNCTION = re.compile(
    rf"(?<![\w.])({'|'.join(_FUNCTIONS)})(?:(\^2|²|\^-1|⁻¹)"
    rf"|_?\{{?([0-9]{{1,2}}|[ₐₙₓ]|(?<=_)[abnx])\}}?(?=\(|\s[0-9xn]))?"
    r"(?=\([^()]{1,24}[()]|(?<=log[0-9])\s[0-9]|\s?(?:[θφαβγ]|[0-9]+°)|(?<=[²¹])[xt](?![\w'’])|\s[xtn](?![\w'’])(?=\s?[-+=<>*/×)^.,\]]|\sd[a-z]\b|$)"
    r"|(?<=ln)\s[0-9a-e](?!\w))"
)
_LOW = {"ₐ": "a", "ₙ": "n", "ₓ": "x"}
_VALUE = re.compile(r"(?<![\w.])([a-zA-Z])(['′]{0,2})\((?=[^(),]{1,12}\)\s?[=<>≤≥≈+−-]|[A-Za-z0-9]\))")
_SIGNS = {
    "∫": "the integral of", "∑": "the sum of", "∏": "the product of", "∂": "partial", "∞": "infinity",
    "∈": "in", "∉": "not in", "∪": "union", "∩": "intersection", "⊂": "is a subset of",
    "⊆": "is a subset of", "∀": "for all", "∃": "there exists", "∴": "therefore", "∵": "because",
    "∝": "is proportional to", "∠": "angle", "⊥": "is perpendicular to", "∥": "is parallel to",
    "≡": "is equivalent to", "≅": "is congruent to", "∇": "del", "∅": "the empty set", "¬": "not",
    "∧": "and", "∨": "or", "√": "the square root of", "∛": "the cube root of", "⇒": "implies",
    "⇔": "if and only if", "≪": "is much less than", "≫": "is much greater than",
    "§": "section", "⌀": "diameter",
}  # fmt: skip
_BOUNDS = re.compile(
    r"([∫∑∏]) ?(?:_?\{?([a-z]) ?= ?)?(?:_?\{?(-?[0-9∞]{1,4}|(?<=[_{=])[0-9a-z]{1,4})\}? ?|([a-z]) )"
    r"\^\{?(-?[0-9a-zA-Zπ∞]{1,4})\}? ?"
)
_SUM_OVER = re.compile(r"∑ ?(?:_\{?)?([ijkn])\}? (?=[A-Za-z(])")
_BOUNDED = {"∫": "the integral", "∑": "the sum", "∏": "the product"}
_SIGN = re.compile(rf"[{''.join(_SIGNS)}]")
_SPACED = re.compile(
    r"(?<=[^\s,;:]) ([+−×÷=≈≠≤≥±]|&&|[|]{2}|[+*−-]=|[=!]?[=!<>]=|(?<=[\w)] )(?:\*\*|//)"
    r"|(?<=[0-9a-z] )%(?= [0-9a-z](?![a-z]))) (?=\S)"
)
_FOR_DAYS = re.compile(r"(?<=[A-Za-z]) × (?=[0-9]{1,3} (?:day|week|month|dose)s?\b)")
_TIGHT = re.compile(r"(?<=[A-Za-z_)\]°²³!|])(=|(?<=\))[×÷]|==|!=|<=|>=|≈|≤|≥|≠)(?=[\w\"'$/~.-])")
_MANY = re.compile(
    r"(?<![A-Za-z])(?:[A-Za-z]?[a-z]{2,}[a-hj-rtv-z]s|people|children)\Z(?<!always)(?<!lens)(?<!gas)(?<!bias)"
)
"""A noun in its plural before a sign with a verb in it: ``Tolls ≈ $14``."""
_COMPARED = re.compile(r"(?<=[a-z]{2}) ([<>]) (?=[a-z]{2})")
_PHRASE_END = re.compile(r"[.,;:!?\n]")
_PATH = re.compile(
    r"(?i)\b(?:click|tap|go to|open|select|choose|press|navigate|settings|menu|file|edit|view|tools|help|"
    r"home|preferences|options|insert|format|window|system|account|profile|panel|toggle)\b"
)
"""Words near the signs between the steps of a menu."""
_PLUS = re.compile(r"(?<=[0-9A-Za-z])\+(?=[0-9])")
_FAT = re.compile(r"(?<!\w)[ωΩ][-–]([369])(s?)(?![\w.])")
_LESS = re.compile(
    r"(?<=(?<![A-Za-z])[A-Za-z])−(?=[0-9A-Za-z(])|(?<=(?<![\w'’-])[nkij])-(?=[12](?![\w.:/-]))"
)
_NEGATIVE = re.compile(r"(?<![^\s=(,\[])−(?= ?[A-Za-z√(]) ?|(?<== )-(?=(?:log|ln)\b|[a-z](?![\w-]))")
_GIVEN = re.compile(r" ?\| ?(?=[^()|]{1,12}\))")
_OF_CHANCE = re.compile(r"\b(?:P|Pr|E|p)\([^()|]{1,12}\Z")
_PARTS = re.compile(r"(?<=[a-z0-9]) : (?=[0-9]{1,2}(?:\.[0-9])? parts?\b)")
_BY_PERCENT = re.compile(r"(?<=[0-9]) / (?=[0-9.]+%\s?[=≈])")
_BELOW_ZERO = re.compile(r"(?<![^\s(])–(?=[$€£]?[0-9][0-9.,]*\s?(?:%|°|percent|degrees))")
_DIGIT_BEFORE = re.compile(r"[0-9%°CF] \Z")
_NEAR = re.compile(r"(?:(?<=[)|²³!°ⁿᵏ])|(?<=[0-9][a-z][a-z])) ?([<>−]) ?(?=[0-9(|-]|[a-z](?!\w)|[A-Z]\()")
_CLOSED = re.compile(
    r"\)(⁻?[⁰¹²³⁴-⁹]{1,3}|\^(?:\([^()\s]{1,7}(?: ?[-+−/·] ?[^()\s]{1,4})?\)"
    r"|\{[^{}\s]{1,7}(?: ?[-+−/·] ?[^{}\s]{1,4})?\}"
    r"|[-−]?[0-9]{1,4}|[a-z]{1,2}))"
)
_APART = re.compile(r" / (?=[^\W_]|[$€£])")
_WORD_BEFORE = re.compile(r"(?:[A-Za-z]{2}|°[CF])[.)\"”]?\Z")
"""Before a stroke with spaces that is a pause: ``city / highway``."""
_BY_LENGTH = re.compile(r" × (?=[0-9])")
_LENGTH_BEFORE = re.compile(r"[0-9](?:[\"”″'’′]| ?(?:in|ft|cm|mm|m)\.?)\Z")
_ABSOLUTE = re.compile(
    r"(?<![\w|<])\|(?! )[A-Za-z0-9 +−-]{1,12}(?<! )\|(?=\s?[=<≤≥+|]|\s>|[.,?]|\s?$|\s(?:cos|sin)\b)"
)
_ONE_TERM = re.compile(r"\|[A-Za-z]\|")
_TERM = re.compile(
    r"(?<![\w.,])([0-9]{1,3})([a-z]{2,3})(?=\s?[-+=−]\s|\^|[²³])|(?<=[+=−-] )([0-9]{1,3})([a-z]{2,3})(?![\w])"
)
_TERM_OF_FRACTIONS = re.compile(r"(?<![\w.,/])([0-9]{1,2})/([0-9]{1,2})(?= [+−×÷=-] ?[0-9x(])")
_AMOUNT = re.compile(
    r"(?<![\w.,])([0-9]+(?:\.[0-9]+)?)(°|%)(?=\s?(?:[−-]\s?[0-9]+(?:\.[0-9]+)?[°%]\s?=|[×*]\s?[$€£]?[0-9]))"
)
_FACTOR = re.compile(
    r"(?<![\w.,])([0-9]{1,3})\((?=[A-Za-z0-9]{1,3} ?[+−-] ?[A-Za-z0-9]{1,4}\)|[0-9]{1,4}\)\s?[-+−=×*/])"
)
_BEFORE_BRACKET = re.compile(r"(?<![\w.,/^])([0-9]{1,6}(?:\.[0-9]{1,6})?)([×÷*])(?=\([0-9a-z])")
_IN_BRACKET = re.compile(
    r"(?:([0-9]{1,3})/([1-9][0-9]{0,2})|([0-9]{1,6}(?:\.[0-9]{1,6})?)(%?))"
    r"(?:\s?([-+−–]) ?(?=[0-9])|(?=\)))(?!/)"
)
_WHAT = re.compile(r"(?i)(?:what(?:['’]?s| is)|calculate|compute|multiply|evaluate|solve) \Z")
_BY = re.compile(r"(?<![\w.,])([0-9]+(?:\.[0-9]+)?) ?x ?(?=[0-9])")
_TIMES = re.compile(r"(?<![\w.,])([0-9]+(?:\.[0-9]+)?) ?x ?(?=[0-9]+(?:\.[0-9]+)?\s?=)")
_PRODUCT = re.compile(
    r"(?:(?<=(?<![A-Za-z])[A-Za-z] = )|(?<=(?<![A-Za-z])[A-Za-z]{2} = )(?=[a-zA-Z]{2}(?:/| =)))"
    r"([a-zA-Z]{2,3})(?:([²³])|\^\{?([0-9])\}?)?"
    r"(?=\s[+=−×·/≈≤≥<>-]\s|/[a-zA-Zλ]|[$.,;)]|$|\s(?:and|so|where|with|for|is|gives|then|when|cos|sin)\b)"
)
_OF_LETTERS = re.compile(r"(?<![\w^])([a-z])(?:\+([a-z])|\^([a-z]))(?![\w^+])")
_RATIO_OF_LETTERS = re.compile(r"(?<![\w:])([a-z]):([a-z])(?= =)")
_INSIDE = re.compile(r"(?<=\([a-z]) - (?=[0-9a-z]{1,3}\))")
_GREEK = re.compile(
    r"(?<![\u0370-\u03ff\u1f00-\u1fff])([α-ωΔΩΣΦΘΛΠΨΓ])([²³])?(?![\u0370-\u03ff\u1f00-\u1fff])"
)
_CAPITALS = {"Θ": "theta", "Λ": "lambda", "Π": "pi", "Ψ": "psi", "Γ": "gamma"}
_AFTER_SPACE = frozenset("+−×÷=≈≠≤≥±&|*-!<>%")
_COMPOUND = {
    "+=": "plus equals",
    "-=": "minus equals",
    "−=": "minus equals",
    "*=": "times equals",
    "&&": "and",
    "||": "or",
    "===": "triple equals",
    "!==": "is not equal to",
    "**": "to the power of",
    "//": "floor divided by",
    "%": "mod",
}


def letters(place: Place, language: Language) -> ReadForm | None:
    """A function, the value of one, or a Greek letter on its own."""
    if found := place.match(_FAT):
        plural = ("es" if found[1] == "6" else "s") if found[2] else ""
        return ReadForm(found.end(), f"omega {language.cardinal(found[1])}{plural}")
    if found := place.match(_FUNCTION):
        words = _FUNCTIONS[found[1]]
        if found[2]:
            words += " squared" if "2" in found[2] or "²" in found[2] else " inverse"
        if found[3]:
            base = language.cardinal(found[3]) if found[3].isdecimal() else _LOW.get(found[3], found[3])
            words += f" base {base}"
        bare = place.text[found.end()] == " "
        of = "" if bare and found[1] in ("log", "ln") and not found[2] else " of"
        return ReadForm(found.end(), words + of + ("" if bare else " "))
    if (found := place.match(_PRODUCT)) and found[1].lower() not in listed.NO_PRODUCTS:
        power = {"²": "2", "³": "3"}.get(found[2] or "", found[3])
        factors = [*found[1], *([language.power(power)] if power else [])]
        return ReadForm(found.end(), " ".join(factors))
    if found := place.match(_OF_LETTERS):
        words = f"{language.plus} {found[2]}" if found[2] else language.power(found[3])
        return ReadForm(found.end(), f"{found[1]} {words}")
    if found := place.match(_RATIO_OF_LETTERS):
        return ReadForm(found.end(), language.ratio(found[1], found[2]))
    if found := place.match(_VALUE):
        prime = " prime" * len(found[2])
        return ReadForm(found.end(), f"{found[1]}{prime} of (")
    return None


def digits(place: Place, language: Language) -> ReadForm | None:
    """A number before several letters of a formula."""
    if (found := place.match(_TERM_OF_FRACTIONS)) and int(found[1]) < int(found[2]):
        return ReadForm(found.end(), language.fraction(int(found[1]), int(found[2])))
    if found := place.match(_AMOUNT):
        unit = language.units[found[2]]
        return ReadForm(found.end(), language.counted(language.numerals.parse(found[1]), unit))
    found = place.match(_TIMES) or (place.match(_BY) if _WHAT.search(place.before) else None)
    if found:
        number = language.number(language.numerals.parse(found[1]))
        return ReadForm(found.end(), f"{number} {language.operations['×']} ")
    if found := place.match(_BEFORE_BRACKET):
        number = language.number(language.numerals.parse(found[1]))
        return ReadForm(found.end(), f"{number} {language.operations[found[2]]} ")
    if (found := place.match(_IN_BRACKET)) and in_factor(place):
        return ReadForm(found.end(), _term(found, language))
    if found := place.match(_FACTOR):
        return ReadForm(found.end(), f"{language.cardinal(found[1])} times (")
    found = place.match(_TERM)
    if not found:
        return None
    number, factors = (found[1], found[2]) if found[1] else (found[3], found[4])
    if factors in language.units or factors in ("st", "nd", "rd", "th", "am", "pm"):
        return None
    return ReadForm(found.end(), f"{language.cardinal(number)} {' '.join(factors)}")


def _term(found: re.Match[str], language: Language) -> str:
    """A term in brackets and the sign after it: ``1-``, ``3/4+``, ``20%``."""
    words = language.fraction(int(found[1]), int(found[2])) if found[1] else ""
    words = words or language.number(language.numerals.parse(found[3]))
    words += f" {language.units['%'].many}" if found[4] else ""
    return f"{words} {language.operations[found[5].replace('–', '-')]} " if found[5] else words


def signs(place: Place, language: Language) -> ReadForm | None:
    """A sign between words or brackets, which no formula of numbers holds."""
    at = place.text[place.start]
    if at in _BOUNDED and (found := place.match(_BOUNDS)):
        return ReadForm(found.end(), _bounded(found, language))
    if found := place.match(_SUM_OVER):
        return ReadForm(found.end(), f"the sum over {found[1]} of ")
    if at in _SIGNS:
        following = place.text[place.start + 1 : place.start + 2]
        return ReadForm(place.start + 1, _SIGNS[at] + ("" if following in (" ", ".", ",", ";", ")") else " "))
    if at == "|":
        given = place.match(_GIVEN) if _OF_CHANCE.search(place.before) else None
        if given:
            return ReadForm(given.end(), " given ")
        found = place.match(_ABSOLUTE)
        if found and _ONE_TERM.match(found[0]):
            joint = " times " if place.text.startswith("|", found.end()) else ""
            return ReadForm(found.end(), f"the absolute value of {found[0][1:-1]}{joint}")
        return ReadForm(place.start + 1, "the absolute value of ") if found else None
    if at == ")":
        found = place.match(_CLOSED)
        if not found:
            return None
        return ReadForm(found.end(), f") {power_of(found[1], language)}")
    if (found := place.match(_BELOW_ZERO)) and not _DIGIT_BEFORE.search(place.before):
        return ReadForm(found.end(), f"{language.minus} ")
    if found := place.match(_LESS):
        return ReadForm(found.end(), f" {language.minus} ")
    if found := place.match(_NEGATIVE):
        return ReadForm(found.end(), f"{language.minus} ")
    if found := place.match(_PLUS):
        return ReadForm(found.end(), f" {language.plus} ")
    found = place.match(_TIGHT) or place.match(_NEAR)
    return ReadForm(found.end(), f" {_operation(found[1], language)} ") if found else None


def _bounded(found: re.Match[str], language: Language) -> str:
    """``∑ i=1 ^n``: the sum and its bounds."""
    low, high = (
        language.number(language.numerals.parse(bound)) if bound.lstrip("-").isdecimal() else bound
        for bound in (found[3] or found[4], found[5])
    )
    low = f"{found[2]} {language.operations['=']} {low}" if found[2] else low
    high = language.letters.get(high, high.replace("∞", _SIGNS["∞"]))
    return f"{_BOUNDED[found[1]]} from {low} to {high} of "


def spaced(place: Place, language: Language) -> ReadForm | None:
    """A sign with a space before it."""
    following = place.text[place.start + 1 : place.start + 2]
    if following == "/" and not place.text.startswith("//", place.start + 1):
        told = _WORD_BEFORE.search(place.before) or place.text.startswith(("$", "€", "£"), place.start + 3)
        apart = place.match(_APART) if told else None
        if found := place.match(_BY_PERCENT):
            return ReadForm(found.end(), f" {language.operations['/']} ")
        over = algebra.over(place, language)
        return over or (ReadForm(apart.end(), f"{language.pause} ") if apart else None)
    if following == "×" and _LENGTH_BEFORE.search(place.before) and (found := place.match(_BY_LENGTH)):
        return ReadForm(found.end(), f" {language.by} ")
    if found := place.match(_PARTS):
        return ReadForm(found.end(), f" {language.to} ")
    if found := place.match(_FOR_DAYS):
        return ReadForm(found.end(), " for ")
    if following in "·⋅":
        return algebra.times(place, language)
    if following not in _AFTER_SPACE and following != "/":
        return None
    if found := place.match(_INSIDE):
        return ReadForm(found.end(), f" {language.minus} ")
    if (found := place.match(_COMPARED)) and _is_alone(place, found[1]):
        return ReadForm(found.end(), f" {_compared(found[1], place, language)} ")
    found = place.match(_SPACED) or place.match(_NEAR)
    if not found:
        return None
    if found[1] in "≤≥≈<>" and _word_at_end(place) in listed.NO_SUBJECTS:
        return ReadForm(found.end(), f" {language.signs_before[found[1]]} ")
    return ReadForm(found.end(), f" {_compared(found[1], place, language)} ")


def _is_alone(place: Place, sign: str) -> bool:
    """Whether a sign between words compares them, and is none of the steps of a path."""
    before = _PHRASE_END.split(place.before)[-1]
    after = _PHRASE_END.split(place.text[place.start + 2 : place.start + 40])[0]
    return sign not in before + after and not place.near(_PATH)


def _compared(sign: str, place: Place, language: Language) -> str:
    words = _operation(sign, language)
    return words.replace("is", "are", 1) if words[:3] == "is " and _MANY.search(place.before) else words


def _word_at_end(place: Place) -> str:
    """The word right before a place in small letters."""
    return place.before.rpartition(" ")[2].lower()


def _operation(sign: str, language: Language) -> str:
    return _COMPOUND.get(sign) or language.operations[sign]


def greek(place: Place, language: Language) -> ReadForm | None:
    """A Greek letter on its own."""
    found = place.match(_GREEK)
    if not found:
        return None
    power = f" {language.power('2' if found[2] == '²' else '3')}" if found[2] else ""
    return ReadForm(found.end(), _named(found[1], language) + power)


def _named(letter: str, language: Language) -> str:
    return {"d": "d", "∂": "partial"}.get(letter) or language.letters.get(letter) or _CAPITALS[letter]
