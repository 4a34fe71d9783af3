"""CosyVoice3's text and audio front end against the reference's."""

from __future__ import annotations

import re
from typing import Any

import pytest
from goldens import COSYVOICE3, Case, Compare

from cosyvoice_runtime import families
from cosyvoice_runtime.audio.mel import mel_spectrogram
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.speakable import is_speakable
from cosyvoice_runtime.text.frontend import TextFrontEnd

TEXTS = COSYVOICE3.settings("text")["cases"]

PREFIX = "You are a helpful assistant.<|endofprompt|>"
BREATHS = f"{PREFIX}[breath]因为他们那一辈人[breath]在乡里面住的要习惯一点，[breath]邻居都很活络。[breath]"
INSTRUCTION = "You are a helpful assistant. 请用广东话表达。<|endofprompt|>"
KATAKANA = "レキシ テキ セカイ ニ オイ テ ワ、カコ ワ タンニ スギサッ タ モノ デ ワ ナイ。"
READ = "Please read the word [R][IY1][D] as in the past tense, not [R][EH1][D]."
TEAR = "The tear [T][EH1][R] was 3 cm long."

OWN: dict[str, list[str]] = {
    BREATHS: [BREATHS + "。"],
    INSTRUCTION: [],
    KATAKANA: [KATAKANA],
    READ: [READ],
    TEAR: ["The tear [T][EH1][R] was three centimeters long."],
}
"""Read otherwise here: a prefix stops neither normalisation nor splitting, an instruction alone says nothing,
Japanese ends with its own marks, and units of pronunciation stay what they are."""


class StandInTokenizer:
    """Counts as the goldens' stand-in for the Qwen2 tokenizer did."""

    def count(self, text: str) -> int:
        return len(re.findall(r"\w+|[^\w\s]", text))


@pytest.mark.parametrize("case", TEXTS, ids=[case["text"][:24] for case in TEXTS])
def test_normalised_and_split_text_equals_upstream_or_is_pinned(case: dict[str, Any]) -> None:
    front_end = TextFrontEnd(StandInTokenizer(), normaliser="rules", family=families.COSYVOICE3)
    try:
        segments = front_end.segments(case["text"])
    except InvalidInput:
        segments = []
    spoken = [segment for segment in case["normalize_split"] if is_speakable(segment)]
    assert segments == OWN.get(case["text"], spoken)


@pytest.mark.parametrize("case", COSYVOICE3.cases("audio_frontend"), ids=str)
def test_mel_equals_reference(case: Case, compare: Compare) -> None:
    mel = mel_spectrogram(case["wav"][0], families.COSYVOICE3.mel)
    compare("mel", mel.T[None], case["mel"], 1e-4)
