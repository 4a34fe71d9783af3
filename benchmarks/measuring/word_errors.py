"""Word and character errors as seed-tts-eval counts them.

The rules are those of ``run_wer.py`` and ``average_wer.py`` in github.com/BytedanceSpeech/seed-tts-eval. What
it publishes is the mean of the sentences' rates, in which a short sentence weighs as much as a long one.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Literal

from measuring.figures import Figures
from measuring.heard import distance
from measuring.workload import Utterance, WorkloadError

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
"""The languages of seed-tts-eval: English is counted in words, Chinese in characters."""
CHINESE_MARKS = (
    "＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､\u3000、〃〈〉《》「」『』【】〔〕〖〗〘〙〚〛〜"
    "〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏﹑﹔·！？｡。"
)
"""Marks that are removed beside ASCII's: ``zhon.hanzi.punctuation`` of zhon 2, which seed-tts-eval uses."""
REMOVED = dict.fromkeys(map(ord, string.punctuation.replace("'", "") + CHINESE_MARKS))


@dataclass(frozen=True)
class Errors:
    """Insertions, deletions and substitutions in one sentence, and its words or characters."""

    wrong: int
    units: int

    @property
    def rate(self) -> float:
        """The rate of one sentence, which is over 1 where more is heard than was said."""
        return self.wrong / self.units


def units(text: str, language: Language) -> list[str]:
    """Cut a text into what errors are counted in: lower-case words, or characters as they are.

    Marks leave no space, so that "well-known" is one word; the apostrophe of ASCII is no mark.
    """
    text = text.translate(REMOVED)
    return text.lower().split() if language == "en" else [*"".join(text.split())]


def require_words(utterances: Sequence[Utterance], language: Language) -> None:
    """Raise a WorkloadError that names a text of marks alone, of which no rate can be counted."""
    for each in utterances:
        if not units(each.text, language):
            raise WorkloadError(f"utterance {each.name}: there is nothing to be heard of {each.text!r}")


def errors(text: str, heard: str, language: Language) -> Errors:
    """Compare what was heard with a text that has words."""
    wanted = units(text, language)
    return Errors(distance(wanted, units(heard, language)), len(wanted))


def error_figures(sentences: Sequence[Errors]) -> Figures:
    """Percentages: the ``mean`` of the sentences' rates with its standard error; ``corpus`` of all units."""
    rates = [100 * each.rate for each in sentences]
    total = sum(each.units for each in sentences)
    return {
        "sentences": len(sentences),
        "units": total,
        "mean": round(mean(rates), 3),
        "standard_error": round(stdev(rates) / len(rates) ** 0.5, 3) if len(rates) > 1 else None,
        "corpus": round(100 * sum(each.wrong for each in sentences) / total, 3),
    }
