from __future__ import annotations

import dataclasses

import pytest

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.text.tokenizer import (
    MAX_TARGET_TOKENS,
    TextPrompt,
    TextTokenizer,
    cross_lingual,
    instruct,
    zero_shot,
)


def test_zero_shot_is_transcript_then_target(tokenizer: TextTokenizer) -> None:
    prompt = zero_shot(tokenizer, "你好。", "Hello.")
    assert prompt.prompt_ids == tuple(tokenizer.encode("你好。"))
    assert prompt.target_ids == tuple(tokenizer.encode("Hello."))
    assert prompt.ids == prompt.prompt_ids + prompt.target_ids


def test_cross_lingual_has_no_prompt(tokenizer: TextTokenizer) -> None:
    assert cross_lingual(tokenizer, "Hello.") == TextPrompt((), tuple(tokenizer.encode("Hello.")))


@pytest.mark.parametrize(
    "instruction", ["用四川话说", "用四川话说<|endofprompt|>", " 用四川话说<|endofprompt|>\n"]
)
def test_instruction_ends_with_one_end_of_prompt(tokenizer: TextTokenizer, instruction: str) -> None:
    prompt = instruct(tokenizer, instruction, "你好")
    assert prompt.prompt_ids == (*tokenizer.encode("用四川话说"), tokenizer.id_of("<|endofprompt|>"))


@pytest.mark.parametrize("bad", ["", " ", "\x00"])
def test_errors_name_the_field(tokenizer: TextTokenizer, bad: str) -> None:
    for field, call in {
        "reference_text": lambda: zero_shot(tokenizer, bad, "a"),
        "target_text": lambda: zero_shot(tokenizer, "a", bad),
        "instruct_text": lambda: instruct(tokenizer, bad, "a"),
    }.items():
        with pytest.raises(InvalidInput) as caught:
            call()
        assert caught.value.field == field


@pytest.mark.parametrize(
    "bad", ["<|endofprompt|>", "a<|endofprompt|>b", "a<|endofprompt|><|endofprompt|>", "a" * 1001]
)
def test_bad_instruction_is_invalid_input(tokenizer: TextTokenizer, bad: str) -> None:
    with pytest.raises(InvalidInput, match="instruct_text"):
        instruct(tokenizer, bad, "a")


def test_too_many_tokens_is_invalid_input(tokenizer: TextTokenizer) -> None:
    with pytest.raises(InvalidInput, match=f"at most {MAX_TARGET_TOKENS} tokens"):
        cross_lingual(tokenizer, "\U00020000" * MAX_TARGET_TOKENS)


def test_prompt_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TextPrompt((), ()).target_ids = (1,)  # type: ignore[misc]


def test_control_characters_make_no_tokens(tokenizer: TextTokenizer) -> None:
    assert zero_shot(tokenizer, "Hi\x00 there.", "\x1bYes.") == zero_shot(tokenizer, "Hi there.", "Yes.")
