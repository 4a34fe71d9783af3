"""Formulae of LaTeX as others write them: ``\\frac{7}{10}`` is ``7⁄10``, ``x \\le 5`` is ``x ≤ 5``."""

from __future__ import annotations

import re
from collections.abc import Iterator

_SIGNS = {
    "times": "×", "cdot": "×", "ast": "×", "div": "÷", "pm": "±", "mp": "±", "le": "≤", "leq": "≤",
    "leqslant": "≤", "ge": "≥", "geq": "≥", "geqslant": "≥", "ne": "≠", "neq": "≠", "approx": "≈",
    "sim": "≈", "equiv": "=", "lt": "<", "gt": ">", "sum": "∑", "prod": "∏", "int": "∫", "infty": "∞",
    "partial": "∂", "in": "∈", "to": "→", "rightarrow": "→", "longrightarrow": "→",
    "Rightarrow": ",", "leftarrow": "=", "gets": "=",
    "nabla": "∇", "therefore": "∴", "mid": "|", "implies": ",", "iff": ",",
    "circ": "°", "degree": "°", "percent": "%", "ldots": "…", "cdots": "…", "dots": "…", "angle": "∠",
    "triangle": "△", "cup": "∪", "cap": "∩", "subset": "⊂", "forall": "∀", "exists": "∃",
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "varepsilon": "ε",
    "theta": "θ", "lambda": "λ", "mu": "μ", "pi": "π", "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "φ",
    "varphi": "φ", "omega": "ω", "Delta": "Δ", "Omega": "Ω", "Sigma": "Σ", "Phi": "Φ", "Gamma": "Γ",
}  # fmt: skip
_SPACED = frozenset("×÷±≤≥≠≈=<>∈∪∩⊂→")
_FORMATS = frozenset(
    ["text", "textbf", "textit", "mathrm", "mathbf", "mathbb", "mathcal", "operatorname", "boxed", "overline",
     "ce", "bar", "hat", "vec", "underline", "tilde"]
)  # fmt: skip
_SILENT = frozenset(
    ["left", "right", "big", "Big", "bigl", "bigr", "displaystyle", "limits", "quad", "qquad", "begin", "end"]
)
_FRACTIONS = frozenset(["frac", "dfrac", "tfrac"])
_BEFORE_LETTERS = {
    ("1", "2"): "½", ("1", "3"): "⅓", ("2", "3"): "⅔", ("1", "4"): "¼", ("3", "4"): "¾", ("1", "6"): "⅙",
}  # fmt: skip
"""Fractions as signs, after which letters are those of a formula and no unit."""
_NAMES = frozenset(["log", "ln", "sin", "cos", "tan", "lim", "max", "min", "exp", "det", "gcd", "mod"])
COMMANDS = frozenset([*_SIGNS, *_FORMATS, *_FRACTIONS, *_NAMES, "sqrt", "left", "right"])
"""Names of commands that are read where they stand outside a formula, too."""
_PIECE = re.compile(r"\\[A-Za-z]+|\\.|[{}^_&]|\s+|[A-Za-z]+|[^\\{}^_&\sA-Za-z]", re.DOTALL)
_PRODUCT = re.compile(r"(?!sin|cos|tan|log|max|min|mod|for|and|if|or|is|in|of|ln|lim)[A-Za-z]{2}|[a-z]{3}")
_ONE_TERM = re.compile(r"[−-]?(?:[0-9.,/⁄]*|\w|\W+|\(.*\))")
"""An exponent that needs no brackets."""
_LOW = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
_DEEPEST = 8


def plain_formula(source: str) -> str:
    """A formula without its delimiters, with the signs that the class of formulae knows."""
    words = re.sub(r" +", " ", "".join(_Formula(source.replace("->", r"\to ")).parts()))
    words = re.sub(r"(?<=[A-Za-z] )([a-z0-9]{1,2}) \^", r"\1^", words)
    return words.replace(" ,", ",").strip()


class _Formula:
    """One way through the pieces of a formula."""

    def __init__(self, source: str) -> None:
        self._pieces = _PIECE.findall(source)
        self._at = 0
        self._depth = 0
        self._plain = False  # In a group of words.

    def parts(self, until: str = "") -> Iterator[str]:
        """The formula's parts up to a closing piece, which is taken."""
        while self._at < len(self._pieces):
            piece = self._next()
            if piece == until:
                return
            yield self._part(piece)

    def _next(self) -> str:
        self._at += 1
        return self._pieces[self._at - 1]

    def _part(self, piece: str) -> str:
        if piece == "{":
            return self._inner()
        if piece == "^":
            power = self._argument()
            if power == "°":
                return power
            return f"^{power}" if _ONE_TERM.fullmatch(power) else f"^({power})"
        if piece == "_":
            below = self._argument()
            return below.translate(_LOW) if below.isdecimal() else f" {below} "
        if piece.startswith("\\"):
            return self._command(piece[1:])
        if piece == "-" and not self._plain:
            return "−"
        if _PRODUCT.fullmatch(piece) and not self._plain:
            return " ".join(piece)
        return " " if piece in "&}" or piece.isspace() else piece

    def _command(self, name: str) -> str:
        if name in _FRACTIONS:
            return self._fraction()
        if name in ("binom", "dbinom"):
            return f" C({self._argument()}, {self._argument()}) "
        if name == "sqrt":
            return self._root()
        if name in _SIGNS:
            sign = _SIGNS[name]
            return f" {sign} " if sign in _SPACED else f"{sign} " if sign == "," else sign
        if name in _FORMATS:
            return self._text(name)
        if name in ("begin", "end"):
            self._argument()
        if name == "\\":
            return ", "
        if name in _SILENT or not name[:1].isalnum():
            return name if name in ("%", "$", "#") else " "
        base = self._base() if name == "log" else ""
        return f" {name}{base}" if self._pieces[self._at : self._at + 1] == ["^"] else f" {name}{base} "

    def _base(self) -> str:
        """The base of a logarithm, below the line."""
        base = "".join(self._pieces[self._at : self._at + 2])
        if not re.fullmatch("_[0-9]", base):
            return ""
        self._at += 2
        return base[1].translate(_LOW)

    def _text(self, name: str) -> str:
        """A group of words, or letters in another type."""
        was, self._plain = self._plain, name.startswith(("text", "math", "operator"))
        words = self._argument()
        self._plain = was
        if name not in ("text", "operatorname"):
            return words
        return f" {words}" if self._pieces[self._at : self._at + 1] in (["^"], ["_"]) else f" {words} "

    def _fraction(self) -> str:
        above, below = self._argument(), self._argument()
        if above.isdecimal() and below.isdecimal():
            following = "".join(self._pieces[self._at : self._at + 1])
            if following[:1].isalpha() and (above, below) in _BEFORE_LETTERS:
                return f" {_BEFORE_LETTERS[above, below]}"
            return f" {above}\N{FRACTION SLASH}{below} "
        return f" {above} / {below} "

    def _root(self) -> str:
        if self._at < len(self._pieces) and self._pieces[self._at] == "[":
            self._next()
            degree = "".join(self.parts("]"))
            return {"3": "∛", "4": "∜"}.get(degree, "√") + self._argument()
        return f"√{self._argument()}"

    def _argument(self) -> str:
        """The group, or the one piece, that a command or sign stands before."""
        while self._at < len(self._pieces) and self._pieces[self._at].isspace():
            self._next()
        if self._at == len(self._pieces):
            return ""
        piece = self._next()
        if piece.isalpha() and len(piece) > 1:
            self._at -= 1
            self._pieces[self._at], piece = piece[1:], piece[0]
        return self._inner() if piece == "{" else self._part(piece).strip()

    def _inner(self) -> str:
        """The words of a group; those that are nested too deep are left out."""
        self._depth += 1
        words = "".join(self.parts("}")) if self._depth <= _DEEPEST else ""
        self._depth -= 1
        return words.strip()


_WORDS = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}|[,.;:!?] +[A-Z]|[\u3000-\u9fff，。]")
_SIGN_OF_FORMULA = re.compile(
    r"[\\^_=<>+×÷{}]|\A-?[A-Za-z]{1,2}'?\Z|\A[A-Za-z0-9]{1,3}[-*/(,][^ ]*\Z|\A[0-9.,%]+\Z"
)


def may_be_formula(source: str) -> bool:
    """Whether the text after a dollar sign may still become a formula: no words of prose begin it."""
    return not _WORDS.search(re.split(r"\\|_\{", source, maxsplit=1)[0])


def is_formula(source: str) -> bool:
    """Whether the text between two dollar signs is a formula, not prose between two amounts."""
    if not source.strip() or source[0].isspace() or source[-1].isspace():
        return False
    return may_be_formula(source) and bool(_SIGN_OF_FORMULA.search(source))
