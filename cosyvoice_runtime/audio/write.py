"""Audio written chunk by chunk to a file or stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import soundfile
from torch import Tensor

from cosyvoice_runtime.errors import InvalidInput

CONTAINERS = {".wav": "wav", ".flac": "flac", ".raw": "raw", ".pcm": "raw"}
ENCODINGS = {"pcm16": "PCM_16", "float32": "FLOAT"}
FULL_SCALE = 32768.0


@contextmanager
def audio_writer(
    target: str | Path | BinaryIO, rate: int, container: str | None = None, encoding: str = "pcm16"
) -> Iterator[Callable[[Tensor], None]]:
    """A function that appends chunks of mono audio, [n] float32 each; beyond full scale pcm16 clips.

    ``raw`` is little-endian samples without a header and needs no seeking, so it suits pipes.

    Args:
        target: a path, or a binary stream (seekable for wav and flac), which is left open.
        rate: samples per second.
        container: ``wav``, ``flac`` or ``raw``; by default what the path's suffix says.
        encoding: ``pcm16`` or ``float32``; flac holds integers only.

    Raises:
        InvalidInput: an unknown container or encoding, or a pair that doesn't exist.
    """
    container = container or _container(target)
    _check(container, encoding)
    with ExitStack() as resources:
        if isinstance(target, str | Path):
            target = resources.enter_context(open(target, "wb"))
        if container == "raw":
            yield _raw_writer(target, encoding)
        else:
            file = soundfile.SoundFile(target, "w", rate, 1, ENCODINGS[encoding], format=container)
            resources.enter_context(file)
            yield lambda samples: file.write(_encode(samples, encoding))


def _raw_writer(stream: BinaryIO, encoding: str) -> Callable[[Tensor], None]:
    def write(samples: Tensor) -> None:
        stream.write(_encode(samples, encoding).tobytes())

    return write


def _container(target: str | Path | BinaryIO) -> str:
    if not isinstance(target, str | Path):
        raise InvalidInput("container", None, "a stream needs one of wav, flac, raw")
    suffix = Path(target).suffix.lower()
    if suffix not in CONTAINERS:
        raise InvalidInput("target", str(target), f"expected a name that ends in {', '.join(CONTAINERS)}")
    return CONTAINERS[suffix]


def _check(container: str, encoding: str) -> None:
    if container not in CONTAINERS.values():
        raise InvalidInput("container", container, "expected wav, flac or raw")
    if encoding not in ENCODINGS:
        raise InvalidInput("encoding", encoding, f"expected one of {', '.join(ENCODINGS)}")
    if (container, encoding) == ("flac", "float32"):
        raise InvalidInput("encoding", encoding, "flac holds pcm16 only")


def _encode(samples: Tensor, encoding: str) -> np.ndarray[Any, Any]:
    values = samples.detach().cpu().numpy()
    if encoding == "float32":
        return values.astype("<f4")
    # The scale that readers divide by, so that pcm16 audio comes back bit for bit.
    return np.clip(np.rint(values * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1).astype("<i2")
