"""A voice as one safetensors file; its header holds the rest as JSON, so the file is whole or absent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from cosyvoice_runtime.errors import CheckpointError, InvalidInput
from cosyvoice_runtime.voice.digest import content_hash
from cosyvoice_runtime.voice.voice import Voice

TENSORS = ("speech_tokens", "prompt_mel", "speaker_embedding")
TEXTS = ("key", "transcript", "checkpoint_id")


class OtherFormatError(CheckpointError):
    """A file is whole, but isn't what this version writes: another one wrote it, or another program."""


def encode_voice(voice: Voice) -> bytes:
    """Content of a voice's file."""
    tensors = {name: np.ascontiguousarray(getattr(voice, name)) for name in TENSORS}
    texts = {name: getattr(voice, name) for name in TEXTS}
    return save(tensors, metadata={**texts, "digest": _digest(voice)})


def read_voice(path: Path) -> Voice:
    """Read a voice from a file called after its key.

    Raises:
        OtherFormatError: it holds something else.
        CheckpointError: the file is damaged.
    """
    with _opened(path) as file:
        header = _header(file, path)
        tensors = {name: file.get_tensor(name) for name in TENSORS}
        voice = Voice(**{name: header[name] for name in TEXTS}, **tensors)
        if header["digest"] != _digest(voice) or voice.key != path.stem:
            raise CheckpointError(f"{path}: the content doesn't match its digest")
        return voice


def read_header(path: Path) -> dict[str, str]:
    """The texts of a voice's file, without its tensors and without a check of them.

    Raises:
        OtherFormatError: the file holds something else.
        CheckpointError: it has no readable header.
    """
    with _opened(path) as file:
        header = _header(file, path)
        return {name: header[name] for name in TEXTS}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """An open safetensors file; whatever is wrong with it is a :class:`CheckpointError`."""
    try:
        with safe_open(path, "np") as file:
            yield file
    except (SafetensorError, InvalidInput) as error:
        raise CheckpointError(f"{path}: damaged ({error})") from error


def _header(file: Any, path: Path) -> dict[str, Any]:
    header: dict[str, Any] = file.metadata() or {}
    missing = sorted({*TEXTS, "digest"} - header.keys()) + sorted(set(TENSORS) - set(file.keys()))
    if missing:
        raise OtherFormatError(f"{path}: no voice as this version keeps them: no {', '.join(missing)}")
    return header


def _digest(voice: Voice) -> str:
    return content_hash(*(getattr(voice, name) for name in (*TEXTS, *TENSORS)))
