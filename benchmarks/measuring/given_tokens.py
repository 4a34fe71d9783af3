"""Utterances of given speech tokens: token2wav's own work, which no draw of the speech LM changes."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from cosyvoice_client.errors import server_error
from cosyvoice_runtime.process.listening import DIRECT

TOKENS, VOCABULARY, CHUNK = (40, 160), 4096, 40
"""Fewest and most of an utterance; codes that every family has; tokens of a chunk."""
MEL_BINS, SPEAKER_DIM = 80, 192
"""Of all published families; the voice is a speaker alone."""
WINDOW, HOP, FLOOR_DB = 1024, 256, -60.0
"""Samples of a spectrum and between two; what is quieter than the loudest by more is as good as silent."""

MODEL = "token2wav"
Samples = NDArray[np.float32]
Tensors = dict[str, NDArray[Any]]


class GivenTokens:
    """Speaks utterances by number through a running server, each always the same way."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = triton_aio.InferenceServerClient(url, channel_args=[DIRECT])

    async def speak(self, number: int) -> Samples:
        """Samples ``[n]`` of an utterance.

        Raises:
            ClientError: the server refuses or fails.
        """
        tokens, speaker = _drawn(number)
        name, waves, ended = uuid.uuid4().hex, [], False
        try:
            for start in range(0, len(tokens), CHUNK):
                end = min(start + CHUNK, len(tokens))
                chunk = wave_chunk(name, tokens[start:end], start, end == len(tokens), f"given {number}")
                waves.append(await self._infer(chunk | (_voice(speaker) if start == 0 else {})))
            ended = True
        finally:
            if not ended:
                cancel = asyncio.ensure_future(self._forget(name))
                await asyncio.shield(cancel)
        return np.concatenate(waves)

    async def __aenter__(self) -> GivenTokens:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def _forget(self, name: str) -> None:
        with contextlib.suppress(Exception):
            await self._infer(wave_chunk(name, [], 0, True, "") | {"cancel": np.array([[True]])})

    async def _infer(self, tensors: Tensors) -> Samples:
        try:
            result = await self._client.infer(MODEL, wave_inputs(tensors))
        except InferenceServerException as error:
            raise server_error(error.status(), error.message(), self.url) from error
        return np.asarray(result.as_numpy("waveform"), np.float32).reshape(-1)


def distance_db(heard: Samples, expected: Samples) -> float:
    """Root mean square distance of two spectra over time, in dB; infinite if one is longer.

    Half precision moves F0 by its rounding, and the source's phase with it: samples differ where nobody
    hears a difference, magnitudes do not.
    """
    if heard.shape != expected.shape:
        return np.inf
    return float(np.sqrt(np.mean(np.square(_decibels(heard) - _decibels(expected)))))


def _decibels(samples: Samples) -> NDArray[Any]:
    frames = np.lib.stride_tricks.sliding_window_view(samples, WINDOW)[::HOP]
    power = np.abs(np.fft.rfft(frames * np.hanning(WINDOW))) ** 2
    return 10 * np.log10(np.maximum(power, power.max(initial=1e-20) * 10 ** (FLOOR_DB / 10)))


def _drawn(number: int) -> tuple[NDArray[Any], NDArray[Any]]:
    random = np.random.default_rng(number)
    tokens = random.integers(0, VOCABULARY, random.integers(*TOKENS)).astype(np.int32)
    return tokens, random.standard_normal(SPEAKER_DIM).astype(np.float32)


def _voice(speaker: NDArray[Any]) -> Tensors:
    return {
        "prompt_speech_tokens": np.zeros((1, 0), np.int32),
        "prompt_speech_feat": np.zeros((1, 0, MEL_BINS), np.float32),
        "prompt_spk_embedding": speaker[None],
    }


def wave_chunk(
    name: str, tokens: Sequence[int] | NDArray[np.int32], position: int, last: bool, voice_key: str
) -> Tensors:
    """Inputs that every call of token2wav has."""
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
    """Inputs of a call, for a client of gRPC."""
    inputs = []
    for name, array in tensors.items():
        inputs.append(triton.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
        inputs[-1].set_data_from_numpy(array)
    return inputs
