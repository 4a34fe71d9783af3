"""The language of a text and of the clauses in it, and the tag that may begin it (``<|yue|>你好``)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator
from itertools import groupby
from typing import NamedTuple

from cosyvoice_runtime.language_names import AUTO, language_tag
from cosyvoice_runtime.text import stop_words

UNDETERMINED = "und"

LETTER = re.compile(r"[^\W\d_]")
# The middle dot U+30FB and the long mark U+30FC also stand in Chinese text, so they don't count as kana.
_KANA = re.compile("[\u3041-\u3096\u30a1-\u30fa\u31f0-\u31ff\uff66-\uff6f\uff71-\uff9d]")
_HANGUL = re.compile("[\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7a3]")
_HAN = re.compile("[\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]")
_CHINESE_MARK = re.compile("(?<=[0-9A-Za-z)%])[，。；](?![A-Z])|[，。；](?=[0-9a-z])")
_SURE = 1.5
"""The least weight that is proof against the marks of Chinese."""
_CHINESE = frozenset({"zh", "yue", "cmn"})
_CHINESE_STYLE = frozenset({"zh", "ja"})
_EAST_ASIAN = frozenset({"zh", "ja", "ko"})

_NOT_JAPANESE = re.compile(
    "[这這们們个为说說时对对过还没沒吗嗎吧呢你您她么麼什怎谁誰给让讓从從问问间间东车门见马鱼鸟"
    "很啊哪两买卖卖贵块钱岁妈爸吃钟样啦哦它经现种开关发电话飞机习书读请谢觉应该]"
)
"""Characters of everyday Chinese that Japanese writes otherwise or not at all."""
_RARELY_JAPANESE = re.compile("[的是了我他她也就都]")
"""Characters of which Japanese has no two in a clause without kana."""

_ENGLISH = re.compile(
    r"(?i)\b(?:the|and|you|your|this|that|these|those|they|their|have|has|had|would|could|should|what|when|"
    r"where|which|with|from|there|because|is|are|was|were|it|its|my|we|our|he|she|his|her|of|to|for|at|not|"
    r"please|hello|on|in|by|as|be|can|will|get|has|all|thanks|don't|it's|i'm|can't|let's|how|why|who)\b"
)
"""Words that make a clause of ASCII letters English rather than a name or another language."""

_ENGLISH_DATE = re.compile(
    r"\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)"
    r"(?:uary|ruary|ch|il|e|y|ust|tember|ober|ember)?\.? [0-9]{1,2}(?![0-9])"
)
"""A date that English alone writes."""
_LATIN_WORD = re.compile(r"(?<![A-Za-z])[A-Za-z]{2,}")
_QUOTED = re.compile("“[^”]*”")
_HAN_WORD = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]+")
_SMALL_WORDS = re.compile(r"(?<![A-Za-z.@/_'-])[a-z]{3,}(?![A-Za-z0-9@/_-]|\.[A-Za-z])")
"""Words in small letters, of which names in a text of another script have no two."""
_UNITS = frozenset(
    (
        "min",
        "sec",
        "kcal",
        "bpm",
        "rpm",
        "fps",
        "px",
        "dpi",
        "vs",
        "sin",
        "cos",
        "tan",
        "log",
        "lim",
        "max",
        "exp",
        "tokens",
        "token",
        "input",
        "output",
        "batch",
        "epoch",
        "size",
        "user",
        "pass",
    )
)
_SIGN_OF_FORMULA = re.compile(
    "(?<![\u0370-\u03ff\u1f00-\u1fff])[\u0370-\u03ff](?![\u0370-\u03ff\u1f00-\u1fff])"
)
"""A Greek letter on its own."""

_LATIN = re.compile("[\u00c0-\u024f\u1e00-\u1eff]")

_CLAUSE_END = re.compile(
    r"[。！？；：，、…\n\r\t“”‘’「」『』（）【】《》〈〉—]|[!?;]|[,:.](?=\s|[^\x00-\x7f]|$)|[\"()](?![0-9])|(?<![0-9])[\"()]"
)
_MARKS_OF_SENTENCES = frozenset("。！？；：、.!?;:\n\r")


def detect(text: str) -> str:
    """``ja`` with kana, else ``ko`` with hangul, else ``zh`` with Han, else what frequent words tell.

    Where they tell nothing, a text of Latin letters is ``en``, any other ``und``: its numbers are left for
    the model to read.
    """
    return _told(text) or ("en" if _is_latin(text) else UNDETERMINED)


def is_told(text: str) -> bool:
    """Whether letters and words tell the language, so that :func:`detect` has nothing to assume."""
    return _told(text) is not None


def _told(text: str) -> str | None:
    for language, script in (("ja", _KANA), ("ko", _HANGUL), ("zh", _HAN)):
        if script.search(text):
            return language
    evidence = stop_words.evidence(text)
    found = evidence.language
    if evidence.weights.get(found or "", 0) < _SURE and _CHINESE_MARK.search(text):
        return "zh"
    return found if found is None or found in stop_words.READ else UNDETERMINED


def resolve(text: str, language: str) -> str:
    """The primary language subtag asked for (``zh-CN`` -> ``zh``), or for ``auto`` the detected one.

    Raises:
        InvalidInput: ``language`` is neither ``auto`` nor a language's tag or name.
    """
    tag = language_tag(language)
    if tag == AUTO:
        return detect(text)
    primary = tag.split("-")[0].lower()
    return "zh" if primary in _CHINESE else primary


def counts_characters(language: str) -> bool:
    """Whether segments of this language are measured in characters (one character is about one syllable)."""
    return language in _CHINESE_STYLE


def runs(text: str, language: str) -> Iterator[tuple[str, str]]:
    """Stretches of one language as pairs of it and the text, in order; they join to the text.

    A stretch ends where a clause does. A clause without letters, or whose words tell nothing, goes with the
    one before it in its sentence, else it is of the text's language.

    Args:
        language: resolved language of the whole text.
    """
    clauses = zip(_languages(text, language), _clauses(text), strict=True)
    for found, parts in groupby(clauses, key=lambda clause: clause[0]):
        yield found, "".join(part for _, part in parts)


def _clauses(text: str) -> Iterator[str]:
    """Parts up to and with each mark, and the rest."""
    start = 0
    for end in _CLAUSE_END.finditer(text):
        yield text[start : end.end()]
        start = end.end()
    if start < len(text):
        yield text[start:]


def _languages(text: str, language: str) -> Iterator[str]:
    """The language of each clause."""
    announced = False
    for sentence in _sentences(text):
        words = "".join(sentence)
        own = before = _language_of_sentence(words, language)
        is_short = len(_LATIN_WORD.findall(words)) > len(_HAN.findall(words))
        if announced and (is_short or _ENGLISH.search(words)):
            own = before = "en"
        announced = own == "en" and language == "zh" and sentence[-1][-1] == ":"
        for clause in sentence:
            before = _language(clause, own) or (own if own == "en" else before)
            yield before


def _sentences(text: str) -> Iterator[list[str]]:
    """The clauses of each sentence."""
    sentence: list[str] = []
    for clause in _clauses(text):
        sentence.append(clause)
        if clause[-1] in _MARKS_OF_SENTENCES:
            yield sentence
            sentence = []
    if sentence:
        yield sentence


def _language_of_sentence(sentence: str, language: str) -> str:
    """English for a sentence of an East Asian text whose words or dates are, else the text's."""
    if language not in _EAST_ASIAN or any(script.search(sentence) for script in (_KANA, _HANGUL)):
        return language
    if _HAN.search(sentence):
        return "en" if language == "zh" and _is_english_about_chinese(sentence) else language
    if _ENGLISH_DATE.search(sentence) or _language_of_alphabet(sentence, language) == "en":
        return "en"
    return language


def _is_english_about_chinese(sentence: str) -> bool:
    """Whether a sentence is English and quotes a few Chinese characters."""
    sentence = _QUOTED.sub("", sentence)
    words, characters = len(_LATIN_WORD.findall(sentence)), len(_HAN.findall(sentence))
    quoted = len(_HAN_WORD.findall(sentence))
    english = set(_ENGLISH.findall(sentence))
    return (
        words > max(0.8 * characters, 2 * quoted)
        and len(english | {*_SMALL_WORDS.findall(sentence)}) > 1
        and bool(english)
    )


def _language(clause: str, language: str) -> str | None:
    """Language of a clause in a text or sentence of ``language``; None without letters."""
    if _KANA.search(clause):
        return "ja"
    if _HANGUL.search(clause):
        return "ko"
    if _HAN.search(clause):
        if language == "en" and _ENGLISH.search(clause):
            return language
        return "zh" if language not in ("ja", "ko") or _is_chinese(clause) else language
    if not any(map(str.isalpha, clause)):
        return None
    return _language_of_alphabet(clause, language)


def _is_chinese(clause: str) -> bool:
    """Whether a clause of Han alone must be Chinese."""
    return bool(_NOT_JAPANESE.search(clause)) or len(set(_RARELY_JAPANESE.findall(clause))) > 1


def _language_of_alphabet(clause: str, language: str) -> str | None:
    """Another language than the text's where most words say so; None where they tell nothing.

    In a Chinese sentence a name is of the text's language, and few words are enough for English.
    """
    words = stop_words.evidence(clause)
    if words.language in stop_words.READ and words.language != language and words.prevails_over(language):
        return words.language
    if language not in _EAST_ASIAN and language != UNDETERMINED:
        return language if words.weights.get(language) else None
    if not _is_ascii(clause):
        return UNDETERMINED if language == UNDETERMINED else None
    english = {word.lower() for word in _ENGLISH.findall(clause)}
    if language == UNDETERMINED:
        return "en" if len(english) > 1 else language
    return "en" if english or len(set(_SMALL_WORDS.findall(clause)) - _UNITS) > 1 else language


def _is_ascii(text: str) -> bool:
    """Whether all letters are, or are wide or ornate forms of such, or signs of formulae (``π``, ``µm``)."""
    if text.isascii():
        return True
    plain = _SIGN_OF_FORMULA.sub("", unicodedata.normalize("NFKC", text))
    return all(map(str.isascii, filter(str.isalpha, plain)))


def _is_latin(text: str) -> bool:
    """Whether all letters are Latin ones."""
    return _is_ascii(_LATIN.sub("", text))


class TaggedText(NamedTuple):
    """A text and the tag before it.

    Attributes:
        tag: that every segment begins with; may be empty.
        words: after it, which are normalised and split as any text is.
    """

    tag: str
    words: str

    def language(self, asked: str) -> str:
        """The language of the tag, unless another language is asked for."""
        return self.tag.strip("<|>") if self.tag and language_tag(asked) == AUTO else asked


class LanguageTags:
    """The tags that may begin a text: those that the speech LM knows."""

    def __init__(self, tags: Collection[str] = ()) -> None:
        self._leading = re.compile(rf"\s*({'|'.join(map(re.escape, tags))})") if tags else re.compile("(?!)")

    def part(self, text: str) -> TaggedText:
        """The tag that the text begins with, and its words."""
        match = self._leading.match(text)
        return TaggedText(match[1], text[match.end() :]) if match else TaggedText("", text)
