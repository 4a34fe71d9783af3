"""What the speech LM reads before it speaks: text ids per mode of use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cosyvoice_runtime.checkpoint.special_tokens import END_OF_PROMPT
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.text.validate import MAX_PROMPT_CHARACTERS, require_text

MAX_TARGET_TOKENS = 1_000
"""Of one segment; the flow's noise ends at 300 s of speech, 7.5 speech tokens for each of these."""

MAX_PROMPT_TOKENS = 1_000
"""Of a transcript or an instruction; a 30 s reference has about 200."""


class TokenEncoder(Protocol):
    """The part of a tokenizer that prompts need."""

    def encode(self, text: str) -> list[int]: ...


@dataclass(frozen=True)
class TextPrompt:
    """Text ids for the speech LM, in the order ``prompt_ids``, ``target_ids``.

    Attributes:
        prompt_ids: transcript of the reference or instruction; empty when the mode has none.
        target_ids: what is to be spoken; the limits of the speech length follow from it alone.
    """

    prompt_ids: tuple[int, ...]
    target_ids: tuple[int, ...]

    @property
    def ids(self) -> tuple[int, ...]:
        return self.prompt_ids + self.target_ids


def zero_shot(tokenizer: TokenEncoder, reference_text: str, target_text: str) -> TextPrompt:
    """Continue the reference: its transcript, then the target (both normalised).

    Raises:
        InvalidInput: a text is empty, malformed or too long (``reference_text``, ``target_text``).
    """
    prompt = _ids(tokenizer, "reference_text", reference_text, MAX_PROMPT_TOKENS)
    return TextPrompt(prompt, _target(tokenizer, target_text))


def cross_lingual(tokenizer: TokenEncoder, target_text: str) -> TextPrompt:
    """Only the target: the reference gives the voice, not the words.

    Raises:
        InvalidInput: the target is empty, malformed or too long.
    """
    return TextPrompt((), _target(tokenizer, target_text))


def instruct(tokenizer: TokenEncoder, instruct_text: str, target_text: str) -> TextPrompt:
    """An instruction on how to speak, ended by ``<|endofprompt|>`` (added if missing), then the target.

    Raises:
        InvalidInput: a text is empty, malformed or too long (``instruct_text``, ``target_text``), or the
            instruction has ``<|endofprompt|>`` elsewhere than at its end.
    """
    instruction = instruct_text.strip().removesuffix(END_OF_PROMPT)
    if END_OF_PROMPT in instruction:
        raise InvalidInput("instruct_text", instruct_text, f"{END_OF_PROMPT} may only stand at its end")
    require_text("instruct_text", instruction, MAX_PROMPT_CHARACTERS)
    prompt = _ids(tokenizer, "instruct_text", instruction + END_OF_PROMPT, MAX_PROMPT_TOKENS)
    return TextPrompt(prompt, _target(tokenizer, target_text))


def _target(tokenizer: TokenEncoder, text: str) -> tuple[int, ...]:
    return _ids(tokenizer, "target_text", text, MAX_TARGET_TOKENS)


def _ids(tokenizer: TokenEncoder, field: str, text: str, limit: int) -> tuple[int, ...]:
    require_text(field, text)
    ids: Sequence[int] = tokenizer.encode(text)
    if len(ids) > limit:
        raise InvalidInput(field, f"{len(ids)} tokens", f"at most {limit} tokens")
    return tuple(ids)
