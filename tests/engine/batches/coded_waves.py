"""Networks whose waveform is the tokens themselves: lost, repeated and foreign tokens show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np

from cosyvoice_runtime.engine.batches import PromptTensors, WaveChunk, WaveService
from cosyvoice_runtime.engine.batches.job import WaveJob
from cosyvoice_runtime.engine.batches.voices import CachedVoice
from cosyvoice_runtime.engine.runtimes.runtime import WaveRuntime
from cosyvoice_runtime.errors import VOCODER, InvalidInput, NotFoundError

LOST_GPU_TOKEN = 997
NAN_TOKEN = 998
BROKEN_TOKEN = 999
BAD_TOKEN = 1000
BLOCK = 25
"""Tokens at whose multiples a chunk may be cut."""


@dataclass(eq=False)
class CodedState:
    pending: list[int] = field(default_factory=list)


class CodedWaves:
    """One sample per token, at once. Four tokens make trouble: NaN, an exception, a lost GPU, a refusal.

    Attributes:
        batches: tokens of every row of every call.
    """

    def __init__(self) -> None:
        self.unit_tokens = BLOCK
        self.open_states: set[CodedState] = set()
        self.batches: list[list[list[int]]] = []
        self.flow = SimpleNamespace(
            recomputing=0,
            calls=0,
            eager_calls=0,
        )

    def open(self, voice: object, noise_seed: int, speed: float) -> CodedState:
        state = CodedState()
        self.open_states.add(state)
        return state

    def push(self, state: CodedState, tokens: Sequence[int], last: bool) -> None:
        self.check(state, tokens)
        state.pending += tokens

    def check(self, state: CodedState, tokens: Sequence[int]) -> None:
        if BAD_TOKEN in tokens:
            raise InvalidInput("speech_tokens", BAD_TOKEN, "tokens are 0 to 999")

    def launch(self, states: Sequence[CodedState]) -> Callable[[], list[np.ndarray]]:
        waves = self.advance(states)
        return lambda: waves

    def advance(self, states: Sequence[CodedState]) -> list[np.ndarray]:
        rows = [state.pending for state in states]
        self.batches.append(rows)
        for state in states:
            state.pending = []
        if any(BROKEN_TOKEN in row for row in rows):
            raise RuntimeError("this row can't be computed")
        if any(LOST_GPU_TOKEN in row for row in rows):
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return [
            np.array([np.nan if token == NAN_TOKEN else token for token in row], np.float32) for row in rows
        ]

    @contextmanager
    def all_or_nothing(self, states: Sequence[CodedState]) -> Iterator[None]:
        before = [state.pending for state in states]
        try:
            yield
        except BaseException:
            for state, pending in zip(states, before, strict=True):
                state.pending = pending
            raise

    def broken_stage(self, state: CodedState) -> str:
        return VOCODER

    def held_pages(self, state: CodedState) -> int:
        return 0

    def lost_pages(self, state: CodedState) -> int:
        return 0

    def wanted_pages(self, state: CodedState) -> int:
        return 0

    def give_up(self, state: CodedState) -> None:
        raise AssertionError("it has no pages")

    def close(self, state: CodedState) -> None:
        self.open_states.discard(state)


class OneVoice:
    """Knows the voice ``known``, and others once they have come with tensors."""

    pages_left = 0

    def __init__(self) -> None:
        self.voices = {"known": CachedVoice(prompt=None)}

    def enter(self) -> None:
        pass

    def leave(self) -> None:
        self.voices.clear()

    @property
    def users(self) -> int:
        return sum(voice.users for voice in self.voices.values())

    def computes(self, key: str, tensors: PromptTensors | None) -> bool:
        return key not in self.voices and tensors is not None

    def awaits(self, key: str, told: Callable[[], None]) -> bool:
        return False

    def acquire(self, key: str, tensors: PromptTensors | None, flow: object) -> CachedVoice:
        if tensors is not None:
            self.voices[key] = CachedVoice(prompt=None)
        if key not in self.voices:
            raise NotFoundError("voice_key", key, "send it")
        self.voices[key].users += 1
        return self.voices[key]

    def release(self, voice: CachedVoice, pages: int = 0) -> None:
        voice.users -= 1


def runtime(waves: CodedWaves, rows: int, **options) -> WaveRuntime:
    """What computes turns of so many rows with these networks."""
    return WaveRuntime("coded", waves, rows, **options)


@dataclass
class FakeClock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


PROMPT = PromptTensors(np.zeros(0, np.int32), np.zeros((0, 20), np.float32), np.zeros(12, np.float32))


def chunk(
    name: str, tokens: Sequence[int] = (), position: int = 0, last: bool = False, **options
) -> WaveChunk:
    arguments = {"voice_key": "known", "noise_seed": 1, **options}
    return WaveChunk(name, list(tokens), position, last, **arguments)


def jobs(*lengths: int) -> list[WaveJob]:
    """Chunks of so many tokens, each of its own utterance, due a second after the one before."""
    return [
        WaveJob(chunk(str(row), [0] * length), deliver=lambda _: None, deadline=float(row))
        for row, length in enumerate(lengths)
    ]


def results(service: WaveService, *chunks: WaveChunk) -> list[list[float] | str]:
    """Outcomes in the order of the chunks: samples, or the error's text."""
    return [str(row) if isinstance(row, Exception) else row.tolist() for row in service.run(chunks)]


def assert_nothing_held(service: WaveService, waves: CodedWaves, voices: OneVoice) -> None:
    assert service.usage().utterances == 0
    assert waves.open_states == set()
    assert voices.users == 0
