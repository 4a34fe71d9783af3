from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from cosyvoice_runtime.checkpoint import Layout
from making.tokenizer_files import SENTENCES, VOCABULARY_SIZE


@pytest.fixture(scope="module")
def tokenizer(tiny_checkpoint: Path) -> Tokenizer:
    layout = Layout(tiny_checkpoint)
    tokenizer = Tokenizer(models.BPE.from_file(str(layout.vocabulary), str(layout.merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.mark.parametrize("text", [*SENTENCES, "naïve 𝄞 한국어 \t\n x²", "1,000,000 – 45.50%"])
def test_any_text_survives_the_round_trip(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_merges_shorten_the_text(tokenizer: Tokenizer) -> None:
    text = "Thank you for listening to this voice. 今天我们一起去北京。"
    assert len(tokenizer.encode(text).ids) < 0.6 * len(text.encode())


def test_vocabulary_is_dense_and_of_the_announced_size(tiny_checkpoint: Path) -> None:
    vocabulary = json.loads(Layout(tiny_checkpoint).vocabulary.read_text(encoding="utf-8"))
    assert sorted(vocabulary.values()) == list(range(VOCABULARY_SIZE))
