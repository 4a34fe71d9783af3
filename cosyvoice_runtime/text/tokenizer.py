"""Text ids that the speech LM reads: byte-level BPE, Qwen2's or Whisper's, with special tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.errors import CheckpointError, InvalidInput
from cosyvoice_runtime.families import load
from cosyvoice_runtime.families.tokens import END_OF_PROMPT, SPECIAL_TOKENS
from cosyvoice_runtime.families.whisper_tokens import WHISPER_TOKENS, byte_signs, read_ranks
from cosyvoice_runtime.speakable import without_controls
from cosyvoice_runtime.text.validate import MAX_PROMPT_CHARACTERS, require_text

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    r"|[^\r\n\p{L}\p{N}]?\p{L}+"
    r"|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)
"""Qwen2's division into words, within which BPE merges (its published ``tokenizer.json``)."""


CACHED_TEXTS = 64
"""A segment is counted where its text is split, and encoded for its prompt; a transcript is for each request
of its voice."""


def read_tokenizer(layout: Layout) -> TextTokenizer:
    """The tokenizer of a checkpoint; a CheckpointError tells of a missing or damaged file."""
    family = layout.family
    tokenizer: TextTokenizer = load(family.tokenizer)(layout.vocabulary, family.special_tokens)
    return tokenizer


class TextTokenizer:
    """Text to ids of the speech LM's text embedding. Safe for threads.

    Ids of the special tokens: those that ``tokenizer_config.json`` declares, then the ones it lacks of
    ``special_tokens``, in that order, after the last id in use (151646 ``<|endofprompt|>`` to 151662 ``[mn]``
    in the published CosyVoice2).

    Args:
        directory: holds ``vocab.json``, ``merges.txt`` and ``tokenizer_config.json``
            (``CosyVoice-BlankEN`` of a checkpoint).
        special_tokens: of the checkpoint's family.

    Raises:
        CheckpointError: a file is missing or damaged, or its special tokens contradict the vocabulary.
    """

    def __init__(self, directory: str | Path, special_tokens: Sequence[str] = SPECIAL_TOKENS) -> None:
        directory = Path(directory)
        self._tokenizer = _byte_level_bpe(directory / "vocab.json", directory / "merges.txt")
        config = directory / "tokenizer_config.json"
        declared = _declared_tokens(config)
        self._add(declared.values())
        self._add(_special(token) for token in special_tokens)
        for expected, token in declared.items():
            actual = self._tokenizer.token_to_id(token.content)
            if actual != expected:
                raise CheckpointError(
                    f"{config}: {token.content} should have id {expected}, it gets {actual}"
                )

    @classmethod
    def beside(cls, vocabulary: Path, special_tokens: Sequence[str]) -> TextTokenizer:
        """The tokenizer whose files lie beside its vocabulary."""
        return cls(vocabulary.parent, special_tokens)

    def __len__(self) -> int:
        """Number of tokens; ids run from 0 to ``len - 1``."""
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def id_of(self, token: str) -> int:
        """The id of a token, special or not; a KeyError tells that there is no such token."""
        token_id = self._tokenizer.token_to_id(token)
        if token_id is None:
            raise KeyError(token)
        return token_id

    def encode(self, text: str) -> list[int]:
        """Ids of a text; special tokens in it become their own ids, nothing is added around it.

        Raises:
            InvalidInput: the text holds a lone surrogate, so it never was valid UTF-8.
        """
        return list(self._cached_ids(text))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """First character and end of each token of a text; one that has only some bytes of a character spans
        it whole."""
        return self._tokenizer.encode(text, add_special_tokens=False).offsets

    def count(self, text: str) -> int:
        """Number of tokens of a text."""
        return len(self._cached_ids(text))

    def decode(self, ids: list[int]) -> str:
        """Text of ids, special tokens included."""
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    @cached_property
    def _cached_ids(self) -> Callable[[str], tuple[int, ...]]:
        return lru_cache(CACHED_TEXTS)(self._ids)

    def _ids(self, text: str) -> tuple[int, ...]:
        try:
            return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)
        except (UnicodeEncodeError, TypeError) as error:
            raise InvalidInput("text", text, "it must be valid UTF-8 (lone surrogates are not)") from error

    def _add(self, tokens: Iterable[AddedToken]) -> None:
        self._tokenizer.add_special_tokens(list(tokens))


def _byte_level_bpe(vocabulary: Path, merges: Path) -> Tokenizer:
    try:
        tokenizer = Tokenizer(models.BPE.from_file(str(vocabulary), str(merges)))
    except Exception as error:  # the Rust library raises a bare Exception
        raise CheckpointError(f"{vocabulary} and {merges}: {error}") from error
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _declared_tokens(path: Path) -> dict[int, AddedToken]:
    """``added_tokens_decoder`` of a tokenizer configuration, in id order."""
    try:
        declared = json.loads(path.read_text(encoding="utf-8")).get("added_tokens_decoder", {})
        return {int(key): _added(entry) for key, entry in sorted(declared.items(), key=lambda kv: int(kv[0]))}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: {error}") from error


def _added(entry: dict[str, Any]) -> AddedToken:
    flags = ("single_word", "lstrip", "rstrip", "normalized")
    return AddedToken(
        entry["content"], special=True, **{flag: bool(entry.get(flag, False)) for flag in flags}
    )


def _special(content: str) -> AddedToken:
    return AddedToken(content, special=True, normalized=False)


MAX_TARGET_TOKENS = 1_000
"""Most tokens of a segment: the flow's noise ends at 300 s of speech, 7.5 speech tokens for each of these."""

MAX_PROMPT_TOKENS = 1_000
"""Most tokens of a transcript or an instruction; a 30 s reference has about 200."""


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
    """The target alone: the reference gives the voice, not the words. An InvalidInput for a bad target."""
    return TextPrompt((), _target(tokenizer, target_text))


def instruct(tokenizer: TokenEncoder, instruct_text: str, target_text: str) -> TextPrompt:
    """An instruction on how to speak, ended by ``<|endofprompt|>`` (added if missing), then the target.

    Raises:
        InvalidInput: a text is empty, malformed or too long (``instruct_text``, ``target_text``), or the
            instruction has ``<|endofprompt|>`` elsewhere than at its end.
    """
    instruction = without_controls(instruct_text).strip().removesuffix(END_OF_PROMPT)
    if END_OF_PROMPT in instruction:
        raise InvalidInput("instruct_text", instruct_text, f"{END_OF_PROMPT} may only stand at its end")
    require_text("instruct_text", instruction, MAX_PROMPT_CHARACTERS)
    prompt = _ids(tokenizer, "instruct_text", instruction + END_OF_PROMPT, MAX_PROMPT_TOKENS)
    return TextPrompt(prompt, _target(tokenizer, target_text))


def _target(tokenizer: TokenEncoder, text: str) -> tuple[int, ...]:
    return _ids(tokenizer, "target_text", text, MAX_TARGET_TOKENS)


def _ids(tokenizer: TokenEncoder, field: str, text: str, limit: int) -> tuple[int, ...]:
    require_text(field, text)
    ids: Sequence[int] = tokenizer.encode(without_controls(text))
    if len(ids) > limit:
        raise InvalidInput(field, f"{len(ids)} tokens", f"at most {limit} tokens")
    return tuple(ids)


class WhisperTokenizer(TextTokenizer):
    """Text to ids of the speech LM's text embedding. Safe for threads.

    Args:
        vocabulary: ``multilingual.tiktoken`` as whisper publishes it, or another of its form.
        special_tokens: after the last id in use.

    Raises:
        CheckpointError: the file is missing or damaged.
    """

    def __init__(self, vocabulary: str | Path, special_tokens: Sequence[str] = WHISPER_TOKENS) -> None:
        path = Path(vocabulary)
        ranks = read_ranks(path)
        if sorted(ranks.values()) != list(range(len(ranks))):
            raise CheckpointError(f"{path}: ids are not 0 to {len(ranks) - 1}")
        self._tokenizer = byte_level_bpe(ranks)
        self._add(AddedToken(token, special=True, normalized=False) for token in special_tokens)


def byte_level_bpe(ranks: Mapping[bytes, int]) -> Tokenizer:
    """A tokenizer that merges as tiktoken does: of all neighbours, those whose joined bytes rank first."""
    signs = byte_signs()
    names = {token: "".join(signs[byte] for byte in token) for token in ranks}
    pairs = [(names[left], names[right]) for left, right in merges(ranks)]
    model = models.BPE(vocab={names[token]: rank for token, rank in ranks.items()}, merges=pairs)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def merges(ranks: Mapping[bytes, int]) -> Iterator[tuple[bytes, bytes]]:
    """All pairs of tokens that make one, in the order of what they make."""
    for token in sorted(ranks, key=ranks.__getitem__):
        cuts = ((token[:place], token[place:]) for place in range(1, len(token)))
        yield from (cut for cut in cuts if cut[0] in ranks and cut[1] in ranks)
