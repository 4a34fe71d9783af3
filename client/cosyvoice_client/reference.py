"""The reference: a recording of the voice to speak with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cosyvoice_client.errors import InvalidArgumentError

SERVER_RATE = 16_000
"""Rate of ``reference_wav`` unless ``reference_sample_rate`` says otherwise."""
RATES = (16_000, 48_000)


@dataclass(frozen=True, eq=False)
class Reference:
    """Mono float32 samples ``[n]`` at ``rate``, and what they say (empty where the words don't matter)."""

    samples: npt.NDArray[np.float32]
    text: str = ""
    rate: int = SERVER_RATE


def read_reference(path: str | Path, text: str = "", rate: int = SERVER_RATE) -> Reference:
    """Read a sound file (wav, flac, ogg, mp3, ...), average its channels and convert it to ``rate``.

    Raises:
        InvalidArgumentError: the file can't be read, or the rate is not 16000 to 48000.
    """
    import soundfile

    if not RATES[0] <= rate <= RATES[1]:
        raise InvalidArgumentError(f"rate of the reference: {rate} is not {RATES[0]} to {RATES[1]}")
    if not Path(path).is_file():
        raise InvalidArgumentError(f"reference {path}: no such file")
    try:
        samples, file_rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.LibsndfileError, OSError, TypeError) as error:
        raise InvalidArgumentError(f"reference {path}: {error}") from error
    return Reference(resample(samples.mean(axis=1), file_rate, rate), text, rate)


def resample(samples: npt.NDArray[Any], rate: int, new_rate: int) -> npt.NDArray[np.float32]:
    """Convert ``[n]`` at ``rate`` to about ``n * new_rate / rate`` samples at ``new_rate``."""
    import soxr

    if rate == new_rate:
        return samples.astype(np.float32)
    return np.asarray(soxr.resample(samples, rate, new_rate), np.float32)
