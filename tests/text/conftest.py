"""Fixtures: a small trained tokenizer and a counter of words."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_tokenizer import WordCounter, write_tokenizer

from cosyvoice_runtime.text.normalise import Normaliser
from cosyvoice_runtime.text.tokenizer import TextTokenizer


@pytest.fixture(scope="session")
def tokenizer_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session")
def tokenizer(tokenizer_directory: Path) -> TextTokenizer:
    return TextTokenizer(tokenizer_directory)


@pytest.fixture
def counter() -> WordCounter:
    return WordCounter()


@pytest.fixture(scope="session")
def normalise() -> Normaliser:
    return Normaliser()
