"""English: letters that stand for numbers: ``4ac``, ``x(2x + 3)``, ``n!/(n − r)!``, ``QKᵀ``, ``d²y/dx²``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm

if TYPE_CHECKING:
    from cosyvoice_runtime.text.reading.languages.language import Language

_OF_ALGEBRA = re.compile(
    r"[√²³∫∑∏]|(?<![A-Za-z])[A-Za-z]\^"
    r"|(?:(?<![\w'’])[a-zA-Z]{1,3} ?[=≠≈≤≥]|[)\]]['’′]? ?[=≈]) ?[-−(0-9a-zA-Z√|]"
    r"|[0-9nkr]!\s?[/)(]|\)!"
    r"|(?<![\w'’])[a-zA-Z]\([a-z0-9]\)|(?<![\w'’])[b-zB-Z] [+−×·] [(0-9b-zB-Z](?![a-zA-Z'’])"
)
"""Signs of a formula with letters."""
_SUM = r"(?=[^()\n]{0,20}[\w²³)] ?[+−-] ?[^()\n]{1,20}\))"
"""In a bracket: terms with a sign between them."""
_AFTER_SUM = r"(?<=[\w²³!'′])\)"
_LETTERS = r"(?:[a-zA-Zπλθ](?:²|³|\^[23]|[⁰¹⁴-⁹]+)?)"
_TERM = re.compile(rf"(?<![\w.,'’])([0-9]{{1,3}})({_LETTERS}{{1,4}})(?![\w'’⁰¹²³⁴-⁹^])")
_OF_ROOT = re.compile(r"[√\s]?\([0-9]{1,3}[a-z]/[a-z]\)|√\([0-9]{1,3}[a-z][)+−-]")
_NO_FACTORS = frozenset(("st", "nd", "rd", "th", "am", "pm", "in", "x"))
_FACTORS = re.compile(
    rf"(?<![\w.'’^])(?!sin|cos|tan|sec|csc|cot|log|dm)(?=[a-zA-Zπ²³]{{1,3}}[²³])({_LETTERS}{{2,4}})(?![\w'’²³^])"
)
_MASSES = re.compile(r"(?<!\w)([GKk]?)([mqMQ])([12])([mqMQ])([12])(?!\w)")
_PRODUCT = re.compile(
    r"(?<![\w.'’])([0-9]{0,3})((?<!\w)[a-eknqrstxyzABCPRSVπ]|[a-z](?=\((?:[^()]*\d?[a-z]²|1 ?[+−])))([²³]?)"
    rf"\((?!t ?[−+-]){_SUM}"
)
_FACTORIAL = re.compile(
    r"(?<![\w.,])([0-9]{1,3}|[nkmrNxp])!(?=\s?[-−=×÷*/+)·≈(]|\s?[.,;]|\s(?:is|for|and|ways)\b|$)"
)
_OF_FACTORIALS = re.compile(
    r"[0-9]! [0-9]!|[0-9nkr]!\s?[-−≈=×÷*/+)·(]|\)!|(?i:factorial|permut|combin|arrang)"
)
_TRANSPOSE = re.compile(r"(?<![\w])([A-Zwxyvuβθ]{1,3})(?:ᵀ|\^\{?(?:T|⊤)\}?(?!\w)|⊤)")
_INVERSE = re.compile(
    r"(?<![\w])(?:([fgh])(?=(?:⁻¹|\^-1|\^\{-1\}) ?\()|([ABMXTPQ])(?=⁻¹))(?:⁻¹|\^-1|\^\{-1\})"
)
_INDEXED = re.compile(
    r"(?<![A-Za-z])(?<![A-Za-z][0-9])([A-Za-zα-ω])([ᵢⱼₖₙₘₐₑₓₜₚₛₗ₊₋0-9]*[ᵢⱼₖₙₘₐₑₓₜₚₛₗ][₊₋0-9]*)"
)
_BELOW = re.compile(
    r"(?<![\w.\\/])([A-Za-z])_(?:\{([a-z0-9]{1,4}(?: ?[-+−] ?[0-9a-z])?)\}|([a-z0-9]{1,2}|max|min|out|eff))"
    r"(?!\w)"
)
_LIMIT = re.compile(
    r"(?<!\w)lim(?: |_?\{|_?\(|_| \()([a-zA-Zθ]) ?(?:→|to|->) ?([-−]?)([0-9]{1,3}|[a-z∞π])([⁺⁻])?[)}]?"
    r" ?(?:of )?"
)
_CHOOSE = re.compile(r"(?<![\w])C\(([0-9]{1,3}|n), ?([0-9]{1,3}|[kr])\)")
_OF_FUNCTION = re.compile(r"(?<=[gnst]\()[a-z]{2}(?=\))(?!is|it|on|in|to|up)")
_SETS = {"ℝ": "the reals", "ℤ": "the integers", "ℕ": "the natural numbers", "ℚ": "the rationals"}
_SET = re.compile("[ℝℤℕℚ]")
_MIXED = re.compile(r"(?<!\w)(?:[A-Za-z]{1,2}[α-ωΔΩ][A-Za-z]{0,2}|[α-ω][A-Za-z]{2})(?!\w)")
_BASES = re.compile(r"(?<![\w'’])[a-z]{2}(?=\^[({])")
_CHANCE = re.compile(r"(?<!\w)(Pr?)\((?=[A-Z] ?[∩∪|]|[A-Za-z0-9] ?\) ?[+−×·])")
_SUM_AFTER = re.compile(
    rf"(?<=[A-Za-z]0)\((?=[0-9]/[0-9]\))"
    rf"|(?:(?<=(?<![A-Za-z'’])[a-eknqrstxyzABPRV])|(?<=[0-9]))\((?!t ?[−+-]){_SUM}"
)
_LOW = dict(zip("ᵢⱼₖₙₘₐₑₓₜₚₛₗ₊₋", "ijknmaextpsl+-", strict=True))
_ORDER = re.compile(r"(?<![\w.])([OΘΩ])\((?=[0-9A-Za-z√2][^()\n]{0,24}[()])")
_DERIVATIVE = re.compile(r"(?<![\w])([dΔ∂])([²³])?([A-Za-zθ]?)/([dΔ∂])([A-Za-zθ])([²³])?(?!\w)")
_SMALL_CHANGE = re.compile(r"(?<![\w'’])d([xytuvrsθ])(?![\w'’])")
_INTEGRAL = re.compile("∫|integral")
_SUMMED = re.compile(r"Σ ?(?=[A-Za-z0-9(√|][\w²ᵢₙ(]{0,3}(?![a-z]{3}))")
_SUM_FROM = re.compile(r"([∑∏])([ᵢⱼₖₙ])₌([01])(ⁿ|ᵏ|ᵐ|\^[0-9]{1,3}|∞|\^∞)? ?")
_PART_OF = re.compile(rf"(?<![\w.,/])([1-9])/([2-9])(?:({_LETTERS}{{1,4}})(?=[(\s=.,;)+*/−-]|$)|(?=\())")
_BRACKETS = re.compile(rf"\)([²³]?)(?=\({_SUM}|\([0-9]|\([a-z0-9]{{1,2}}\)\s?[=.,])")
_BRACKET_LETTER = re.compile(r"\)(?=[a-zA-Z](?![\w'’]))")
_PRIMES = re.compile(
    r"(?<![\w'’])([fguvyhFG]{1,2})(['’′]{1,2})(?=[\s(+=·fguvxh,.)]|$)"
    r"(?!\((?:[a-z0-9]\)|[^(),]{1,12}\) ?[=<>]))"
)
_PRIMED = re.compile(r"(?<=\))(['’′]{1,2})(?=[\s=.,;)(]|$)")
_AFTER_BRACKET = re.compile(r"\)!")
_REMAINDER = re.compile(
    r"(?<![\w.,])([0-9]{1,6}) ?% (?=(?:[0-9]{1,4}|[a-z])(?: (?:is|==?|gives|returns|equals)(?!\w)|\)|,|$))"
)
_SHELL = re.compile(r"(?<![\w.,])([1-7])([spdf])(?:\^([0-9]{1,2})|([¹²³]))(?!\w)")
_OF_SHELLS = re.compile(r"config|orbital|\[(?:He|Ne|Ar|Kr|Xe)\]|\b1s[¹²]")
_GROUPS = re.compile(r"[2-9](?![\w]|[.,][0-9])")
_GROUP_BEFORE = re.compile(r"[A-Z][a-z]?[0-9]?\((?:[A-Z][a-z]?[0-9₀-₉]?){1,4}\)\Z")
_STROKE = re.compile(r" ?/ ?(?=[(\[√A-Za-zα-ωΔ0-9|])")
_OF_EQUATION = re.compile(rf"{_OF_ALGEBRA.pattern}|[=≈][^.;]{{0,12}}/ ?[α-ω]|[\w)\]] ?= ?[-−(0-9√]")
_OF_WORDS = re.compile(r"= \(?[a-z]{4,12}\Z")
_WORD = re.compile(r"[a-z]{4,12}(?= =|\) ×|[.,;]?$|[.,;] )")
_DIVISOR = re.compile(r"([a-zA-Z][0-9]?)(?:([²³])(?![\w(])|(?=\)| ?[=≈+]|$|[.,;] ))")
_STROKE_BEFORE = re.compile(
    r"(?:[)\]!ᵀ²³'ᵢⱼₖₙα-ω]|(?<![A-Za-z])(?:[a-z]{2}|nRT)|[mqMQ][12]|(?<![A-Za-z])[A-Za-z]|(?<![\w.])[0-9]{1,4}(?:\.[0-9]{1,4})?[a-zA-Z]{0,2}"
    r"|= \(?[a-z]{4,12})\Z"
)
_OPENED = re.compile(r"\((?:[^()\n]{0,24}[\w²³)] ?[+−-] ?[^()\n]{1,24}|[0-9.,−-]+[^()\n]{0,16})\Z")
_EVALUATED = re.compile(r"\](?:_\{?)?([0-9]{1,2}|a)\}?\^\{?([0-9]{1,2}|[bπ∞])\}?")
_NORM = re.compile(r"‖([A-Za-z]{1,3})‖")
_TIMES = re.compile(r"(?<=!)[·×](?=[0-9a-z(])|(?<=[0-9][a-z])[·⋅](?=[0-9]{0,3}[a-z](?![\w·⋅]))")
_TIMES_FACTOR = re.compile(r"(?<=[)²³])[·⋅](?=[0-9A-Za-z(√])")
_POINT = re.compile(r"(?<=[\w)!²³]) [·⋅] (?=[\w(√])")
_NAUGHT = re.compile(r"(?<=[GHSE])°(['’′])?(?=[\s=,.)]|cell)")
_RAISED_TO = re.compile(r"(?<=[\w)\]²³])\^(?=[({\\-]?[A-Za-z0-9(−-])")


def letters(place: Place, language: Language) -> ReadForm | None:
    """A letter, or letters, of a formula."""
    if found := place.match(_FACTORIAL):
        return _factorial(found, place, language)
    if found := place.match(_LIMIT):
        number = language.cardinal(found[3]) if found[3].isdecimal() else found[3]
        near = [language.minus] * bool(found[2]) + ["infinity" if number == "∞" else number]
        side = {"⁺": " from the right", "⁻": " from the left"}.get(found[4] or "", "")
        limit = "" if place.before.endswith("limit ") else "the limit "
        return ReadForm(found.end(), f"{limit}as {found[1]} approaches {' '.join(near)}{side} of ")
    if found := place.match(_CHOOSE):
        many, few = (language.cardinal(each) if each.isdecimal() else each for each in found.groups())
        return ReadForm(found.end(), f"{many} choose {few}")
    if (found := place.match(_OF_FUNCTION)) and place.near(_OF_ALGEBRA):
        return ReadForm(found.end(), " ".join(found[0]))
    if found := place.match(_SET):
        return ReadForm(found.end(), _SETS[found[0]])
    if (found := place.match(_MIXED)) and found[0] not in language.units and place.near(_OF_ALGEBRA):
        return ReadForm(found.end(), " ".join(_letter(each, language) for each in found[0]))
    if (found := place.match(_BASES)) and place.near(_OF_ALGEBRA):
        return ReadForm(found.end(), " ".join(found[0]))
    if found := place.match(_CHANCE):
        return ReadForm(found.end(), f"{found[1]} of (")
    if found := place.match(_TRANSPOSE):
        names = (language.letters.get(letter, letter) for letter in found[1])
        return ReadForm(found.end(), f"{' '.join(names)} transpose{_joint(place, found.end())}")
    if found := place.match(_INVERSE):
        of = " of " if found[1] else _joint(place, found.end())
        return ReadForm(found.end(), f"{found[1] or found[2]} inverse{of}")
    if found := place.match(_INDEXED):
        return ReadForm(found.end(), f"{_letter(found[1], language)} {_index(found[2], language)}")
    if (found := place.match(_PRIMES)) and place.near(_OF_ALGEBRA):
        space = "" if place.text[found.end() : found.end() + 1] in " =,.)" else " "
        return ReadForm(found.end(), f"{' '.join(found[1])}{' prime' * len(found[2])}{space}")
    if (found := place.match(_BELOW)) and place.near(_OF_ALGEBRA):
        return ReadForm(found.end(), f"{found[1]} sub {_index(found[2] or found[3], language)}")
    if found := place.match(_ORDER):
        return ReadForm(found.end(), f"{_letter(found[1], language)} of (")
    if (found := place.match(_DERIVATIVE)) and (found[3] or found[2] or place.near(_OF_ALGEBRA)):
        of = " of " if place.text[found.end() : found.end() + 1] in ("(", "[") else ""
        return ReadForm(found.end(), _derivative(found, language) + of)
    if (found := place.match(_SMALL_CHANGE)) and place.near(_INTEGRAL):
        return ReadForm(found.end(), f"d {_letter(found[1], language)}")
    if found := place.match(_SUMMED):
        return ReadForm(found.end(), "the sum of ")
    if (found := place.match(_PRODUCT)) and place.near(_OF_ALGEBRA):
        return ReadForm(found.end(), _product(found, language))
    if (found := place.match(_FACTORS)) and found[0] not in language.units:
        return ReadForm(found.end(), _factors(found[1], language))
    if found := place.match(_MASSES):
        words = (language.cardinal(each) if each.isdecimal() else each for each in found.groups() if each)
        return ReadForm(found.end(), " ".join(words))
    return None


def group(place: Place, language: Language) -> ReadForm | None:
    """The number of a group of atoms: ``Ca(OH)₂``."""
    found = place.match(_GROUPS)
    if not found or not _GROUP_BEFORE.search(place.before):
        return None
    return ReadForm(found.end(), f" {language.cardinal(found[0])}")


def digits(place: Place, language: Language) -> ReadForm | None:
    """A number before letters or a bracket of a formula."""
    if found := place.match(_FACTORIAL):
        return _factorial(found, place, language)
    if (found := place.match(_SHELL)) and place.near(_OF_SHELLS):
        shell, letter, power, raised = found.groups()
        count = power or raised.translate(_POWERS)
        return ReadForm(found.end(), f"{language.cardinal(shell)} {letter} {language.cardinal(count)}")
    if found := place.match(_REMAINDER):
        return ReadForm(found.end(), f"{language.cardinal(found[1])} mod ")
    if (found := place.match(_PART_OF)) and found[3] not in language.units and place.near(_OF_ALGEBRA):
        part = language.fraction(int(found[1]), int(found[2]))
        factors = f" {_factors(found[3], language)}" if found[3] else " times "
        return ReadForm(found.end(), part + factors)
    if (found := place.match(_PRODUCT)) and place.near(_OF_ALGEBRA):
        return ReadForm(found.end(), _product(found, language))
    found = place.match(_TERM)
    if not found or found[2] in _NO_FACTORS or not place.near(_OF_ALGEBRA):
        return None
    letters = re.sub("[⁰¹²³⁴-⁹^0-9]", "", found[2])
    if len(found[2]) == 1 and not _OF_ROOT.match(place.text, max(0, place.start - 2)):
        return None
    if (letters in language.units or letters in language.scales) and letters != "ac" and len(found[2]) > 1:
        return None
    return ReadForm(found.end(), f"{language.cardinal(found[1])} {_factors(found[2], language)}")


def signs(place: Place, language: Language) -> ReadForm | None:
    """A bracket, a stroke or a sign of a formula."""
    at = place.text[place.start]
    if at in "∑∏" and (found := place.match(_SUM_FROM)):
        return ReadForm(found.end(), _summed(found, language))
    if at == ")":
        return _after_bracket(place, language)
    if at == "(" and (found := place.match(_SUM_AFTER)) and place.near(_OF_ALGEBRA):
        return ReadForm(found.end(), " times (")
    if (found := place.match(_PRIMED)) and place.near(_OF_ALGEBRA):
        return ReadForm(found.end(), " prime" * len(found[1]))
    if found := place.match(_NAUGHT):
        return ReadForm(found.end(), f" naught{' prime' if found[1] else ''}{_joint(place, found.end())}")
    if (found := place.match(_RAISED_TO)) and place.near(_OF_ALGEBRA):
        return ReadForm(found.end(), " to the power of ")
    if found := place.match(_EVALUATED):
        low, high = (language.cardinal(each) if each.isdecimal() else each for each in found.groups())
        return ReadForm(found.end(), f"] from {low} to {language.letters.get(high, high)}")
    if found := place.match(_NORM):
        return ReadForm(found.end(), f"the norm of {found[1]}")
    if (found := place.match(_TIMES)) or ((found := place.match(_TIMES_FACTOR)) and place.near(_OF_ALGEBRA)):
        return ReadForm(found.end(), " times ")
    return over(place, language)


def times(place: Place, language: Language) -> ReadForm | None:
    """A point for a product, with spaces around it."""
    found = place.match(_POINT)
    return (
        ReadForm(found.end(), f" {language.operations['×']} ") if found and place.near(_OF_ALGEBRA) else None
    )


def over(place: Place, language: Language) -> ReadForm | None:
    """``(a + b) / (c − d)``, ``n!/(n − r)!``: a stroke beside a bracket, a root or a letter of a formula."""
    found = place.match(_STROKE)
    if not found or not _STROKE_BEFORE.search(place.before):
        return None
    before, after = place.before[-1:], place.text[found.end()]
    is_greek = "α" <= after <= "ω" or "α" <= before <= "ω"
    if _OF_WORDS.search(place.before) and _WORD.match(place.text, found.end()):
        return ReadForm(found.end(), " divided by ")
    divisor = _DIVISOR.match(place.text, found.end())
    marked = is_greek or divisor or before in ")]!ᵀ²³" or after in "(√" or found[0] == " / "
    if not marked or not place.near(_OF_EQUATION):
        return None
    words = " over " if before in "!ᵀ" or after == "√" else " divided by "
    if not divisor or not divisor[2]:
        return ReadForm(found.end(), words)
    return ReadForm(divisor.end(), f"{words}{divisor[1]} {_power(divisor[2], language)}")


def _after_bracket(place: Place, language: Language) -> ReadForm | None:
    if found := place.match(_AFTER_BRACKET):
        return ReadForm(found.end(), ") factorial")
    if not _OPENED.search(place.before) or not place.near(_OF_ALGEBRA):
        return None
    if found := place.match(_BRACKETS):
        return ReadForm(found.end(), f"{f') {_power(found[1], language)}'.rstrip()} times ")
    found = place.match(_BRACKET_LETTER)
    return ReadForm(found.end(), ") times ") if found else None


def _factorial(found: re.Match[str], place: Place, language: Language) -> ReadForm | None:
    if not place.near(_OF_FACTORIALS):
        return None
    number = language.cardinal(found[1]) if found[1].isdecimal() else found[1]
    joint = " times " if place.text[found.end() : found.end() + 1] == "(" else ""
    return ReadForm(found.end(), f"{number} factorial{joint}")


def _summed(found: re.Match[str], language: Language) -> str:
    words = "the sum" if found[1] == "∑" else "the product"
    low = f"{_LOW[found[2]]} equals {language.cardinal(found[3])}"
    top = (found[4] or "").strip("^").translate(_HIGH)
    top = language.cardinal(top) if top.isdecimal() else top
    return f"{words} from {language.ranged(low, top) if top else low} of "


def _product(found: re.Match[str], language: Language) -> str:
    words = [language.cardinal(found[1])] if found[1] else []
    words.append(_letter(found[2], language))
    words.append(_power(found[3], language))
    return f"{' '.join(filter(None, words))} times ("


def _derivative(found: re.Match[str], language: Language) -> str:
    above = [_letter(found[1], language), _power(found[2], language), _letter(found[3], language)]
    below = [_letter(found[4], language), _letter(found[5], language), _power(found[6], language)]
    return f"{' '.join(filter(None, above))} over {' '.join(filter(None, below))}"


def _factors(letters: str, language: Language) -> str:
    """``πr²h``: letter by letter."""
    pieces = re.findall(r"[^⁰¹²³⁴-⁹^0-9]|[⁰¹²³⁴-⁹]+|\^[23]", letters)
    words = (_letter(each, language) if each.isalpha() else _power(each, language) for each in pieces)
    return " ".join(words)


def _power(sign: str | None, language: Language) -> str:
    return language.power(sign.strip("^").translate(_POWERS)) if sign else ""


def _index(written: str, language: Language) -> str:
    plain = "".join(_LOW.get(sign, sign) for sign in written)
    pieces = re.findall("[0-9]+|[a-z]{3}|[a-z]|[-+−]", plain)
    words = {"+": language.plus, "-": language.minus, "−": language.minus}
    return " ".join(language.cardinal(each) if each.isdecimal() else words.get(each, each) for each in pieces)


def _letter(letter: str, language: Language) -> str:
    return {"∂": "partial"}.get(letter) or language.letters.get(letter, letter)


def _joint(place: Place, end: int) -> str:
    """A space between a word and letters that follow it at once."""
    return " " if place.text[end : end + 1].isalnum() else ""


_POWERS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_HIGH = str.maketrans({"ⁿ": "n", "ᵏ": "k", "ᵐ": "m", "∞": "infinity"})
