"""The text tokenizer: Qwen2's byte-level BPE with CosyVoice2's special tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from cosyvoice_runtime.checkpoint.special_tokens import SPECIAL_TOKENS
from cosyvoice_runtime.errors import CheckpointError, InvalidInput

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


class TextTokenizer:
    """Text to ids of the speech LM's text embedding. Safe for threads.

    Ids of the special tokens: those that ``tokenizer_config.json`` declares, then the ones it lacks of
    ``SPECIAL_TOKENS``, in that order, after the last id in use (151646 ``<|endofprompt|>`` to 151662 ``[mn]``
    in the published checkpoint).

    Args:
        directory: holds ``vocab.json``, ``merges.txt`` and ``tokenizer_config.json``
            (``CosyVoice-BlankEN`` of a checkpoint).

    Raises:
        CheckpointError: a file is missing or damaged, or its special tokens contradict the vocabulary.
    """

    def __init__(self, directory: str | Path) -> None:
        directory = Path(directory)
        self._tokenizer = _byte_level_bpe(directory / "vocab.json", directory / "merges.txt")
        config = directory / "tokenizer_config.json"
        declared = _declared_tokens(config)
        self._add(declared.values())
        self._add(_special(token) for token in SPECIAL_TOKENS)
        for expected, token in declared.items():
            actual = self._tokenizer.token_to_id(token.content)
            if actual != expected:
                raise CheckpointError(
                    f"{config}: {token.content} should have id {expected}, it gets {actual}"
                )

    def __len__(self) -> int:
        """Number of tokens; ids run from 0 to ``len - 1``."""
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    def id_of(self, token: str) -> int:
        """Id of one token, special or not.

        Raises:
            KeyError: no such token.
        """
        token_id = self._tokenizer.token_to_id(token)
        if token_id is None:
            raise KeyError(token)
        return token_id

    def encode(self, text: str) -> list[int]:
        """Ids of a text; special tokens in it become their own ids, nothing is added around it.

        Raises:
            InvalidInput: the text holds a lone surrogate, so it never was valid UTF-8.
        """
        try:
            return self._tokenizer.encode(text, add_special_tokens=False).ids
        except (UnicodeEncodeError, TypeError) as error:
            raise InvalidInput("text", text, "it must be valid UTF-8 (lone surrogates are not)") from error

    def count(self, text: str) -> int:
        """Number of tokens of a text."""
        return len(self.encode(text))

    def decode(self, ids: list[int]) -> str:
        """Text of ids, special tokens included."""
        return self._tokenizer.decode(ids, skip_special_tokens=False)

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
