"""Text ids that CosyVoice-300M's speech LM reads: whisper's byte-level BPE with its special tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.families.whisper_tokens import WHISPER_TOKENS, byte_signs, read_ranks
from cosyvoice_runtime.text.tokenizer import TextTokenizer


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
