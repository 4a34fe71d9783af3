"""CosyVoice-300M's front end against the reference: text ids and the prompt's mel."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from goldens import COSYVOICE_300M, TESTS, Case, Compare, read

from cosyvoice_runtime import families
from cosyvoice_runtime.audio.mel import mel_spectrogram
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families.whisper_tokens import WHISPER_TOKENS, read_ranks, write_ranks
from cosyvoice_runtime.text.frontend import TextFrontEnd
from cosyvoice_runtime.text.tokenizer import WhisperTokenizer

TEXT = COSYVOICE_300M.settings("text")
BYTES_AND_MERGES = 50_257
RANKS = Path(__file__).with_name("whisper_ranks.tiktoken")
"""Of whisper's vocabulary, what the stored texts hold: all single bytes, and tokens that occur in them. No
other token takes part when they are merged."""
STORED = read(TESTS / "goldens_cosyvoice300m" / "text.json")["cases"]
each_stored_text = pytest.mark.parametrize("case", STORED, ids=[case["text"][:24] for case in STORED])
OWN: dict[str, list[str]] = {
    "<|yue|>你好": ["<|yue|>你好。"],
    "": [],
    "<|jp|>こんにちは<|ja|>こんにちは": ["こんにちは<|ja|>こんにちは"],
    "<|startoftranscript|><|0.00|><|endoftext|>": ["<|startoftranscript|><|0.00|>"],
}
"""Read otherwise here: the words after a tag are completed as any text is, an empty text is refused, and
tokens of other models and the end of a text are left out."""


@cache
def ranks() -> list[int]:
    return sorted(read_ranks(RANKS).values())


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> WhisperTokenizer:
    """Its ids are places in `ranks`, and then those of special tokens."""
    place = {rank: number for number, rank in enumerate(ranks())}
    file = tmp_path_factory.mktemp("whisper") / "some.tiktoken"
    write_ranks(file, {token: place[rank] for token, rank in read_ranks(RANKS).items()})
    return WhisperTokenizer(file)


def published_id(number: int) -> int:
    few = len(ranks())
    return ranks()[number] if number < few else BYTES_AND_MERGES + number - few


@each_stored_text
def test_text_ids_equal_reference(case: dict[str, Any], tokenizer: WhisperTokenizer) -> None:
    assert list(map(published_id, tokenizer.encode(case["text"]))) == case["ids"]


@each_stored_text
def test_segments_equal_reference_or_are_pinned(case: dict[str, Any], tokenizer: WhisperTokenizer) -> None:
    front_end = TextFrontEnd(tokenizer, normaliser="rules", family=families.COSYVOICE_300M)
    try:
        segments = front_end.segments(case["text"])
    except InvalidInput:
        segments = []
    assert segments == OWN.get(case["text"], case["normalize_split"])


@pytest.mark.parametrize("case", COSYVOICE_300M.cases("audio_frontend"), ids=str)
def test_prompt_mel(case: Case, compare: Compare) -> None:
    mel = mel_spectrogram(case["wav"][0].numpy(), families.COSYVOICE_300M.mel)
    compare("mel", mel.T[None], case["mel"], 1e-4)


def test_special_tokens_have_the_published_ids() -> None:
    ids = {token: BYTES_AND_MERGES + place for place, token in enumerate(WHISPER_TOKENS)}
    assert {token: ids[token] for token in TEXT["special_ids"]} == TEXT["special_ids"]
    assert BYTES_AND_MERGES + len(WHISPER_TOKENS) == TEXT["n_vocab"]
