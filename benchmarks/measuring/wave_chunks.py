"""Calls of token2wav by itself, as tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tritonclient.grpc as triton
from numpy.typing import NDArray
from tritonclient.utils import np_to_triton_dtype

MODEL = "token2wav"
Tensors = dict[str, NDArray[Any]]


def wave_chunk(
    name: str, tokens: Sequence[int] | NDArray[np.int32], position: int, last: bool, voice_key: str
) -> Tensors:
    """What every call has."""
    return {
        "utterance_id": np.array([[name.encode()]], np.object_),
        "speech_tokens": np.array([tokens], np.int32),
        "position": np.array([[position]], np.int32),
        "last": np.array([[last]]),
        "voice_key": np.array([[voice_key.encode()]], np.object_),
        "noise_seed": np.array([[1]], np.int64),
        "speed": np.array([[1]], np.float32),
    }


def wave_inputs(tensors: Mapping[str, NDArray[Any]]) -> list[triton.InferInput]:
    """A call's, for a client of gRPC."""
    inputs = []
    for name, array in tensors.items():
        inputs.append(triton.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
        inputs[-1].set_data_from_numpy(array)
    return inputs
