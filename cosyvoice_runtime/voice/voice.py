"""A speaker as the networks need it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cosyvoice_runtime.arrays import Array, Floats, Ids
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.voice.digest import KEY, content_hash

FLOW_FRAMES_PER_TOKEN = 2
"""Mel frames of the flow (50 Hz) per speech token (25 Hz): ``token_mel_ratio`` of CosyVoice2 and CosyVoice3.

Stored voices have no configuration beside them; a flow that they don't fit refuses them (`check_prompt`).
"""


@dataclass(frozen=True, eq=False)
class Voice:
    """A speaker as prompt: n speech tokens, the mel of the same stretch of audio, and an embedding.

    Attributes:
        key: content hash of what the voice was made from; 64 hexadecimal digits.
        transcript: what the reference audio says; empty for a voice without one, which serves every
            mode but zero-shot.
        speech_tokens: [n] int32; n is 0 for a speaker known by embedding alone.
        prompt_mel: [frames, mel bins] float32: 2n, or with CosyVoice-300M those of the whole recording.
        speaker_embedding: [D] float32, not normalised.
        checkpoint_id: the checkpoint whose extractors made it, by their hash.

    Raises:
        InvalidInput: a field of another shape or type.
    """

    key: str
    transcript: str
    speech_tokens: Ids
    prompt_mel: Floats
    speaker_embedding: Floats
    checkpoint_id: str

    @cached_property
    def prompt_key(self) -> str:
        """Content hash of the arrays alone: the only name that no other voice can be given."""
        return content_hash(self.speech_tokens, self.prompt_mel, self.speaker_embedding)

    def require_made_with(self, checkpoint_id: str, name: str) -> None:
        """
        Args:
            name: by which whoever asked for the voice knows it.

        Raises:
            InvalidInput: other extractors made it, so that its tokens say nothing to this checkpoint.
        """
        if self.checkpoint_id != checkpoint_id:
            limit = (
                f"speech tokenizer and speaker encoder of checkpoint {self.checkpoint_id!r} made it, and "
                f"those of this one are {checkpoint_id!r}; make it again from its recording"
            )
            raise InvalidInput("voice", name, limit)

    @classmethod
    def of_nobody(cls, mel_bins: int, speaker_dim: int, checkpoint_id: str) -> Voice:
        """One to try a checkpoint with that brings none: an embedding alone, which is nobody's."""
        nobody = np.ones(speaker_dim, np.float32)
        no_tokens, no_mel = np.zeros(0, np.int32), np.zeros((0, mel_bins), np.float32)
        return cls(
            content_hash("nobody", nobody, checkpoint_id), "", no_tokens, no_mel, nobody, checkpoint_id
        )

    def __post_init__(self) -> None:
        if not KEY.fullmatch(self.key):
            raise InvalidInput("key", self.key, "expected 64 hexadecimal digits")
        _check("speech_tokens", self.speech_tokens, 1, np.int32)
        _check("prompt_mel", self.prompt_mel, 2, np.float32)
        _check("speaker_embedding", self.speaker_embedding, 1, np.float32)
        frames, tokens = self.prompt_mel.shape[0], self.speech_tokens.shape[0]
        if bool(frames) != bool(tokens):
            limit = f"there are {tokens} speech tokens: a prompt has both, or neither"
            raise InvalidInput("prompt_mel", f"{frames} frames", limit)


def _check(field: str, array: Array, ndim: int, dtype: type[np.generic]) -> None:
    if array.ndim != ndim or array.dtype != dtype:
        given = f"{array.dtype} {list(array.shape)}"
        raise InvalidInput(field, given, f"expected {dtype.__name__} with {ndim} dimension(s)")
    if not np.isfinite(array).all():
        raise InvalidInput(field, "NaN or infinity", "expected finite values")
