"""A change of the sample rate that gives the same samples however the speech is cut into chunks.

The filter is a sinc in a Kaiser window (Kaiser, 1974; Oppenheim and Schafer, Discrete-Time Signal Processing,
section 7.5). Samples and weights are rounded to multiples of powers of two, so that float64 holds each sum
exactly, and the order in which a processor adds makes no difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from cosyvoice_client.chunk import AudioChunk

Samples = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

ATTENUATION_DB = 80.0
"""Decibels by which the filter dampens what the lower of both rates can't hold."""
TRANSITION = 0.1
"""The share of the lower Nyquist frequency, at its upper end, over which the filter falls."""
KAISER_BETA = 0.1102 * (ATTENUATION_DB - 8.7)
"""Kaiser's window for that attenuation, by his formula for more than 50 dB."""
SAMPLE_BITS, WEIGHT_BITS = 23, 24
"""Fractional bits of samples and of weights: with 4 bits for the sum they stay below the 53 of float64."""
FEWEST_AT_ONCE = 32
"""Outputs that one row of the product makes, at least; of fewer, most time would go into copies of inputs."""


class StreamResampler:
    """Converts mono speech from one rate to another, chunk by chunk.

    All chunks together are the conversion of the whole, sample by sample, and begin with its first sample.

    Args:
        rate: samples per second that are pushed.
        new_rate: samples per second that come out.

    Attributes:
        delay_s: the longest time for which a sample is held back, half the length of the filter in seconds.
    """

    def __init__(self, rate: int, new_rate: int) -> None:
        divisor = math.gcd(rate, new_rate)
        self._step, self._phases = rate // divisor, new_rate // divisor
        self._half, self._weights = _weights(rate, new_rate)
        self.delay_s = self._half / rate
        self._pushed = self._given = 0
        self._held: Doubles = np.zeros(self._half - 1)

    def push(self, samples: Samples) -> Samples:
        """Take the next samples, float32 ``[n]`` in [-16, 16], and return those that are certain, ``[m]``."""
        self._take(np.rint(samples.astype(np.float64) * 2.0**SAMPLE_BITS))
        return self._give(-(-(self._pushed - self._half) * self._phases // self._step))

    def finish(self) -> Samples:
        """Return the rest: all together are ``ceil(n * new_rate / rate)`` samples of n pushed ones."""
        length = -(-self._pushed * self._phases // self._step)
        self._take(np.zeros(self._half))
        return self._give(length)

    def _take(self, samples: Doubles) -> None:
        self._pushed += len(samples)
        self._held = np.concatenate([self._held, samples])

    def _give(self, until: int) -> Samples:
        """Return the outputs up to this one.

        ``_held`` begins with the first input of the row in which the next output is.
        """
        if until <= self._given:
            return np.zeros(0, np.float32)
        inputs, outputs = self._weights.shape
        stride = outputs // self._phases * self._step
        first, rows = self._given // outputs, -(-until // outputs) - self._given // outputs
        missing = (rows - 1) * stride + inputs - len(self._held)
        padded = np.concatenate([self._held, np.zeros(max(0, missing))])
        windows = np.lib.stride_tricks.sliding_window_view(padded, inputs)[: rows * stride : stride]
        made = (np.ascontiguousarray(windows) @ self._weights).reshape(-1)
        given = made[self._given - first * outputs : until - first * outputs]
        self._given = until
        self._held = self._held[(until // outputs - first) * stride :]
        return (given * 2.0 ** -(SAMPLE_BITS + WEIGHT_BITS)).astype(np.float32)


class ChunkResampler:
    """Converts the chunks of a server to one rate, each segment of the text as a whole.

    Args:
        rate: samples per second that come out.
    """

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._resampler: StreamResampler | None = None

    def convert(self, chunk: AudioChunk) -> AudioChunk:
        """Return the chunk at the rate, with all of a segment that ends with it."""
        if chunk.sample_rate == self._rate:
            return chunk
        self._resampler = self._resampler or StreamResampler(chunk.sample_rate, self._rate)
        samples = self._resampler.push(chunk.samples)
        if chunk.finish_reason:
            samples = np.concatenate([samples, self.rest()])
        return replace(chunk, samples=samples, sample_rate=self._rate)

    def rest(self) -> Samples:
        """Return what is held back of a segment that has not been seen to end."""
        resampler, self._resampler = self._resampler, None
        return np.zeros(0, np.float32) if resampler is None else resampler.finish()


def at_rate(chunks: Iterable[AudioChunk], rate: int | None) -> Iterator[AudioChunk]:
    """The chunks of an utterance at another rate; None leaves them as they are.

    A silence at the end may bring one chunk more.
    """
    if rate is None:
        yield from chunks
        return
    resampler = ChunkResampler(rate)
    for chunk in chunks:
        yield (last := resampler.convert(chunk))
    if len(rest := resampler.rest()):
        yield replace(last, samples=rest, words=())


@lru_cache(maxsize=16)
def _weights(rate: int, new_rate: int) -> tuple[int, Doubles]:
    """Half the filter's length in inputs, and whole-numbered weights ``[inputs, outputs]`` of some outputs.

    Output j lies ``j * rate / new_rate`` inputs behind the first one, and reaches as far to both sides.
    """
    divisor = math.gcd(rate, new_rate)
    step, phases = rate // divisor, new_rate // divisor
    nyquist = min(rate, new_rate) / 2
    taps = (ATTENUATION_DB - 7.95) / (2.285 * 2 * math.pi * TRANSITION * nyquist / rate)  # Kaiser's estimate
    half = math.ceil(taps / 2)
    cutoff = (1 - TRANSITION / 2) * 2 * nyquist / rate
    offsets = np.arange(1 - half, half + 1, dtype=np.float64)
    fractions = np.arange(phases) * step % phases / phases
    times = offsets - fractions[:, None]
    window = np.i0(KAISER_BETA * np.sqrt(np.maximum(0.0, 1 - (times / half) ** 2)))
    kernels = np.sinc(cutoff * times) * window
    kernels = np.rint(kernels / kernels.sum(axis=1, keepdims=True) * 2.0**WEIGHT_BITS)
    outputs = phases * -(-FEWEST_AT_ONCE // phases)
    starts = np.arange(outputs) * step // phases
    weights = np.zeros((outputs // phases * step + 2 * half, outputs))
    for output, start in enumerate(starts):
        weights[start : start + 2 * half, output] = kernels[output % phases]
    return half, weights
