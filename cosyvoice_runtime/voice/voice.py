"""A speaker as the networks need it, in memory and as one file."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from cosyvoice_runtime.arrays import Array, Floats, Ids
from cosyvoice_runtime.errors import CheckpointError, InvalidInput
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
        adapter: name of the speech LM's adapter that speaks with this voice; empty for none.

    Raises:
        InvalidInput: a field of another shape or type.
    """

    key: str
    transcript: str
    speech_tokens: Ids
    prompt_mel: Floats
    speaker_embedding: Floats
    checkpoint_id: str
    adapter: str = ""

    @cached_property
    def prompt_key(self) -> str:
        """Content hash of the arrays alone: the only name that no other voice can be given."""
        return content_hash(self.speech_tokens, self.prompt_mel, self.speaker_embedding)

    def require_made_with(self, checkpoint_id: str, name: str) -> None:
        """Refuse a voice of another checkpoint.

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

    def with_adapter(self, adapter: str) -> Voice:
        """The voice, spoken with an adapter of the checkpoint's folder ``adapters``."""
        return dataclasses.replace(self, adapter=adapter, key=content_hash("adapter", self.key, adapter))

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


TENSORS = ("speech_tokens", "prompt_mel", "speaker_embedding")
TEXTS = ("key", "transcript", "checkpoint_id")
ADAPTER = "adapter"
"""The text that a voice without an adapter lacks in its file."""
DIGEST, DIGEST_WITH_ADAPTER = "digest", "digest_with_adapter"
"""The text of a file by which damage is found. It has another name where there is an adapter: a version that
knows of none would take that for damage, and leaves a file alone that has no ``digest``."""
HEADER_LENGTH_BYTES = 8
"""Length of the number that a safetensors file begins with, which is the length of its header."""


class OtherFormatError(CheckpointError):
    """A file is whole, but isn't what this version writes: another one wrote it, or another program."""


def encode_voice(voice: Voice) -> bytes:
    """Content of a voice's file."""
    tensors = {name: np.ascontiguousarray(getattr(voice, name)) for name in TENSORS}
    texts = {name: getattr(voice, name) for name in _texts(voice)}
    return save(tensors, metadata={**texts, _digest_name(texts): _digest(voice)})


def read_voice(path: Path) -> Voice:
    """Read a voice from a file called after its key.

    Raises:
        OtherFormatError: it holds something else.
        CheckpointError: the file is damaged.
    """
    with _opened(path) as file:
        header = _header(file.metadata(), file.keys(), path)
        return _voice(header, {name: file.get_tensor(name) for name in TENSORS}, path.stem, path)


def decode_voice(content: bytes, origin: str) -> Voice:
    """The voice that :func:`encode_voice` has written.

    Args:
        origin: where the content comes from, for the error.

    Raises:
        CheckpointError: as :func:`read_voice`.
    """
    try:
        length = int.from_bytes(content[:HEADER_LENGTH_BYTES], "little")
        told = json.loads(content[HEADER_LENGTH_BYTES:][:length])
        tensors = load(content)
    except (SafetensorError, ValueError) as error:
        raise CheckpointError(f"{origin}: damaged ({error})") from error
    header = _header(told.get("__metadata__"), tensors, origin)
    return _voice(header, {name: tensors[name] for name in TENSORS}, header["key"], origin)


def read_header(path: Path) -> dict[str, str]:
    """The texts of a voice's file, without its tensors and without a check of them.

    Raises:
        OtherFormatError: the file holds something else.
        CheckpointError: it has no readable header.
    """
    with _opened(path) as file:
        header = _header(file.metadata(), file.keys(), path)
        return {ADAPTER: "", **{name: header[name] for name in (*TEXTS, ADAPTER) if name in header}}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """An open safetensors file; whatever is wrong with it is a :class:`CheckpointError`."""
    try:
        with safe_open(path, "np") as file:
            yield file
    except (SafetensorError, InvalidInput) as error:
        raise CheckpointError(f"{path}: damaged ({error})") from error


def _header(metadata: dict[str, str] | None, tensors: Iterable[str], origin: str | Path) -> dict[str, Any]:
    header: dict[str, Any] = metadata or {}
    missing = sorted({*TEXTS, _digest_name(header)} - header.keys()) + sorted(set(TENSORS) - set(tensors))
    if missing:
        raise OtherFormatError(f"{origin}: no voice as this version keeps them: no {', '.join(missing)}")
    return header


def _voice(header: dict[str, Any], tensors: dict[str, Any], key: str, origin: str | Path) -> Voice:
    try:
        texts = {name: header[name] for name in (*TEXTS, ADAPTER) if name in header}
        voice = Voice(**texts, **tensors)
    except InvalidInput as error:
        raise CheckpointError(f"{origin}: damaged ({error})") from error
    if header[_digest_name(header)] != _digest(voice) or voice.key != key:
        raise CheckpointError(f"{origin}: the content doesn't match its digest")
    return voice


def _digest(voice: Voice) -> str:
    return content_hash(*(getattr(voice, name) for name in (*_texts(voice), *TENSORS)))


def _digest_name(texts: Collection[str]) -> str:
    return DIGEST_WITH_ADAPTER if ADAPTER in texts else DIGEST


def _texts(voice: Voice) -> tuple[str, ...]:
    return (*TEXTS, ADAPTER) if voice.adapter else TEXTS
