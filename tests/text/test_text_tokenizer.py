from __future__ import annotations

import json
import shutil
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_runtime.errors import CheckpointError, InvalidInput
from cosyvoice_runtime.families.tokens import QWEN2_TOKENS, SPECIAL_TOKENS
from cosyvoice_runtime.text.tokenizer import TextTokenizer

PIECES = st.one_of(
    st.sampled_from(SPECIAL_TOKENS),
    st.sampled_from(
        [
            "你好，世界",
            "Hello world",
            "I'll they'RE",
            "こんにちは",
            "안녕",
            "👍🏽👨‍👩‍👧",
            "e\u0301",
            "  ",
            "\n\n",
            "\t",
            "1999",
        ]
    ),
    st.text(max_size=8),
)
TEXTS = st.lists(PIECES, max_size=8).map("".join)


@pytest.fixture(scope="module")
def reference(tokenizer_directory: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    reference = transformers.AutoTokenizer.from_pretrained(str(tokenizer_directory))
    reference.add_tokens(list(SPECIAL_TOKENS), special_tokens=True)
    return reference


@settings(max_examples=400)
@given(text=TEXTS)
def test_ids_equal_the_reference_tokenizer(reference: Any, tokenizer: TextTokenizer, text: str) -> None:
    assert tokenizer.encode(text) == reference(text)["input_ids"]


def test_ids_belong_to_who_asks_for_them(tokenizer: TextTokenizer) -> None:
    ids = tokenizer.encode("Hello world")
    expected = [*ids]
    ids.append(1)
    assert tokenizer.encode("Hello world") == expected
    assert tokenizer.count("Hello world") == len(expected)


@settings(max_examples=200)
@given(text=TEXTS)
def test_decoding_restores_the_composed_text(tokenizer: TextTokenizer, text: str) -> None:
    assert unicodedata.normalize("NFC", tokenizer.decode(tokenizer.encode(text))) == unicodedata.normalize(
        "NFC", text
    )


def test_special_tokens_follow_the_vocabulary_in_order(
    tokenizer: TextTokenizer, tokenizer_directory: Path
) -> None:
    first = len(json.loads((tokenizer_directory / "vocab.json").read_text(encoding="utf-8")))
    ids = [tokenizer.id_of(token) for token in SPECIAL_TOKENS]
    assert ids == list(range(first, first + len(SPECIAL_TOKENS)))
    assert tokenizer.id_of("<|endofprompt|>") == tokenizer.id_of("<|im_end|>") + 1
    assert len(tokenizer) == ids[-1] + 1


def test_published_layout_puts_the_marks_at_the_published_ids() -> None:
    assert [151643 + SPECIAL_TOKENS.index(token) for token in ("<|endofprompt|>", "[breath]", "[mn]")] == [
        151646,
        151647,
        151662,
    ]


def test_special_token_is_one_id_inside_text(tokenizer: TextTokenizer) -> None:
    ids = tokenizer.encode("哈[laughter]哈")
    assert ids == [*tokenizer.encode("哈"), tokenizer.id_of("[laughter]"), *tokenizer.encode("哈")]


def test_configuration_without_declared_tokens_gets_the_same_ids(
    tokenizer: TextTokenizer, tokenizer_directory: Path, tmp_path: Path
) -> None:
    directory = shutil.copytree(tokenizer_directory, tmp_path / "bare")
    (directory / "tokenizer_config.json").write_text("{}")
    bare = TextTokenizer(directory)
    assert [bare.id_of(token) for token in SPECIAL_TOKENS] == [tokenizer.id_of(t) for t in SPECIAL_TOKENS]


def test_contradicting_declared_id_is_refused(tokenizer_directory: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(tokenizer_directory, tmp_path / "other")
    declared = {"9999": {"content": QWEN2_TOKENS[0], "special": True}}
    (directory / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": declared}))
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json.*9999"):
        TextTokenizer(directory)


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt", "tokenizer_config.json"])
@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_damaged_file_is_named(tokenizer_directory: Path, tmp_path: Path, name: str, damage: str) -> None:
    directory = shutil.copytree(tokenizer_directory, tmp_path / "damaged")
    if damage == "missing":
        (directory / name).unlink()
    else:
        content = (directory / name).read_bytes()
        (directory / name).write_bytes(content[: len(content) // 2] + b"\n[")
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        TextTokenizer(directory)


def test_unknown_token_raises(tokenizer: TextTokenizer) -> None:
    with pytest.raises(KeyError):
        tokenizer.id_of("[no such token]")


@pytest.mark.parametrize("text", ["a\ud800b", "\udc00"])
def test_lone_surrogate_is_invalid_input(tokenizer: TextTokenizer, text: str) -> None:
    with pytest.raises(InvalidInput, match="valid UTF-8"):
        tokenizer.encode(text)
