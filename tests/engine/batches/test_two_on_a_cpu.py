"""Two schedulers on one CPU share the networks, the pages and the voices."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from mmap import PAGESIZE
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from spoken import chunks_of, prompt_tensors, speech_tokens

from cosyvoice_runtime.engine.batches import (
    PromptTensors,
    VoiceCache,
    WaveChunk,
    WaveOutcome,
    WaveRouter,
    WaveService,
    load,
    open_router,
)
from cosyvoice_runtime.engine.batches.load import open_memories, start_scheduler
from cosyvoice_runtime.engine.batches.usage import WaveMetrics
from cosyvoice_runtime.engine.runtimes.onnx_runtime import load_token2wav, open_runtimes
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.metrics.page import read_samples
from cosyvoice_runtime.onnx.session import EstimatorFormats
from cosyvoice_runtime.settings import Token2WavSettings
from cosyvoice_runtime.token2wav.onnx_export import export_wave
from examples import examples

TIMEOUT_S = 120.0
VOICES = {"v": 60, "w": 30, "x": 40}
PAGES_ENOUGH, PAGES_FEW = 120, 9
TOLERANCE = 2e-3
"""Of the waveform, full scale 1, where blocks were computed anew, other numbers of them at once."""


@pytest.fixture(scope="module")
def settings(torch_settings, tmp_path_factory) -> Token2WavSettings:
    directory = tmp_path_factory.mktemp("networks")
    export_wave(torch_settings.checkpoint_dir, directory, EstimatorFormats())
    return torch_settings.replace(
        backend="onnx",
        backend_dir=directory,
        device="cpu,cpu",
        max_flow_pages=PAGES_ENOUGH,
    )


def test_schedulers_share_networks_and_pages(settings):
    first, second = (runtime.token2wav for runtime in open_runtimes(settings))
    assert first.vocoder is second.vocoder
    assert first.flow.flow is second.flow.flow
    assert first.flow.pool is second.flow.pool
    assert first.flow is not second.flow  # whose calls are counted
    assert first.flow.pool.num_pages == settings.most_flow_pages


def test_pages_that_only_the_warm_up_wrote_are_given_back(settings):
    pool = open_runtimes(settings)[0].token2wav.flow.pool
    # Ends of a page may lie in a system page that a neighbour has, too.
    assert np.count_nonzero(pool.estimator) < PAGESIZE


@pytest.fixture(scope="module")
def prompts(settings) -> dict[str, PromptTensors]:
    token2wav = load_token2wav(settings)
    return {key: prompt_tensors(token2wav, size) for key, size in VOICES.items()}


def send(router: WaveRouter, chunk: WaveChunk) -> WaveOutcome:
    """A chunk, and what comes of it."""
    outcome: Future[WaveOutcome] = Future()
    router.submit(chunk, outcome.set_result)
    return outcome.result(TIMEOUT_S)


def test_two_who_speak_at_once_have_one_voice_and_the_metrics_tell_it_once(settings, prompts, tmp_path):
    router = open_router(settings, Metrics("token2wav", tmp_path))
    for name in "ab":
        assert len(send(router, WaveChunk(name, [], 0, False, "v", 7, prompt=prompts["v"]))) == 0
    shown = Counter[str]()
    for sample in read_samples(tmp_path):
        shown[sample.name.removeprefix("cosyvoice_token2wav_")] += sample.value
    of_memory = {name: shown[name] for name in ("voices", "voice_pages", "pages_in_use", "pages")}
    assert of_memory == {"voices": 1, "voice_pages": 2, "pages_in_use": 2, "pages": PAGES_ENOUGH}
    assert (shown["utterances"], shown["voice_lookups_total"]) == (2, 2)
    router.close()
    assert {sample.value for sample in read_samples(tmp_path) if "pages_in_use" in sample.name} == {0}


def test_an_utterance_waits_for_pages_that_another_scheduler_speaks_with(settings, prompts, tmp_path):
    router = open_router(settings.replace(max_flow_pages=30), Metrics("token2wav", tmp_path))
    tokens = speech_tokens(26 * 25 + 30, 0)
    begun = send(router, WaveChunk("long", tokens[:-25], 0, False, "w", 7, prompt=prompts["w"]))
    assert not isinstance(begun, Exception)
    waiting: Future[WaveOutcome] = Future()
    router.submit(WaveChunk("next", tokens[:25], 0, True, "w", 7), waiting.set_result)

    def shown() -> float:
        return sum(sample.value for sample in read_samples(tmp_path) if "waiting_for_pages" in sample.name)

    assert soon(lambda: shown() == 1)
    assert not isinstance(
        send(router, WaveChunk("long", tokens[-25:], len(tokens) - 25, True, "w", 7)), Exception
    )
    assert len(waiting.result(TIMEOUT_S)) > 0
    router.close()
    assert shown() == 0


def soon(true: Callable[[], bool]) -> bool:
    """Whether it is, in time."""
    end = time.monotonic() + TIMEOUT_S
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()


@dataclass(frozen=True)
class Speech:
    """An utterance.

    Attributes:
        cancelled: it is, before this of its chunks.
    """

    name: str
    voice: str
    tokens: list[int]
    hop: int
    seed: int
    cancelled: int | None = None

    @classmethod
    def drawn(cls, name: str, random: Random) -> Speech:
        length, hop = random.randint(1, 110), random.choice([10, 25, 40])
        cancelled = random.choice([None, None, random.randint(0, length // hop)])
        seed = random.randrange(100)
        return cls(name, random.choice([*VOICES]), speech_tokens(length, seed), hop, seed, cancelled)

    def chunks(self, prompts: Mapping[str, PromptTensors]) -> list[WaveChunk]:
        ends = [*range(self.hop, len(self.tokens), self.hop), len(self.tokens)]
        return chunks_of(self.name, self.tokens, ends, self.voice, prompts[self.voice], self.seed)


class Pair:
    """Two schedulers at work, whose memory is given back all the time."""

    def __init__(self, settings: Token2WavSettings, directory: Path) -> None:
        metrics = Metrics("token2wav", directory)
        ready = open_runtimes(settings)
        memories = open_memories(ready, settings, metrics)
        self.pool, self.voices = ready[0].token2wav.flow.pool, memories[0].voices
        schedulers = [
            start_scheduler(runtime, settings, WaveMetrics(metrics, str(number)), memory)
            for number, (runtime, memory) in enumerate(zip(ready, memories, strict=True))
        ]
        self.router = WaveRouter(schedulers, memories=memories[:1])
        self._flows = [runtime.token2wav.flow for runtime in ready]
        self._give_back = ready[0].trim
        self._ended = threading.Event()
        self._giver = threading.Thread(target=self._keep_giving)
        self._giver.start()

    @property
    def recomputes(self) -> int:
        return sum(flow.recomputing for flow in self._flows)

    def speak(self, speech: Speech, prompts: Mapping[str, PromptTensors]) -> list[np.ndarray] | None:
        """What is heard; None if it was cancelled."""
        heard = []
        for number, chunk in enumerate(speech.chunks(prompts)):
            if number == speech.cancelled:
                assert len(send(self.router, WaveChunk.forgetting(speech.name))) == 0
                return None
            heard.append(send(self.router, chunk))
            assert not isinstance(heard[-1], Exception), heard[-1]
        return heard

    def close(self) -> None:
        self._ended.set()
        self._giver.join()
        self.router.close()
        assert self.pool.free_pages == self.pool.num_pages

    def _keep_giving(self) -> None:
        while not self._ended.wait(0.01):
            self._give_back()


@pytest.fixture(scope="module", params=[PAGES_ENOUGH, PAGES_FEW])
def pair(request, settings, tmp_path_factory) -> Iterator[Pair]:
    few = settings.replace(max_flow_pages=request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "MAX_VOICES", 2)
        pair = Pair(few, tmp_path_factory.mktemp("metrics"))
    with closing(pair):
        yield pair


@pytest.fixture(scope="module")
def alone(settings, prompts) -> Callable[[Speech], np.ndarray]:
    """What is heard of an utterance that has everything to itself."""
    token2wav = load_token2wav(settings)
    numbers = count()

    def alone(speech: Speech) -> np.ndarray:
        voices = VoiceCache(token2wav.flow, 1)
        with closing(WaveService(token2wav, voices, 60)) as service:
            one = dataclasses.replace(speech, name=f"alone {next(numbers)}")
            return np.concatenate([service.run([chunk])[0] for chunk in one.chunks(prompts)])

    return alone


NAMES = count()


@hypothesis_settings(max_examples=examples(3, fresh=30))
@given(random=st.randoms(use_true_random=False), threads=st.integers(2, 6))
def test_utterances_of_two_schedulers_equal_each_alone(pair, alone, prompts, random, threads):
    """Voices that are forgotten and computed again, cancels, and pages that run out."""
    speeches = [Speech.drawn(str(next(NAMES)), random) for _ in range(8)]
    before = pair.recomputes
    with ThreadPoolExecutor(threads) as listeners:
        spoken = list(listeners.map(lambda speech: pair.speak(speech, prompts), speeches))
    exact = pair.pool.num_pages == PAGES_ENOUGH
    if exact:
        assert pair.recomputes == before
    for speech, heard in zip(speeches, spoken, strict=True):
        if heard is not None:
            tolerance = 0 if exact else TOLERANCE
            np.testing.assert_allclose(np.concatenate(heard), alone(speech), atol=tolerance, rtol=0)
    usage = pair.voices.usage()
    assert usage.pages_in_use == usage.voice_pages
    assert usage.voices <= 2


@pytest.mark.parametrize("pair", [PAGES_FEW], indirect=True)
def test_pages_of_voices_go_to_utterances_of_both(pair, prompts):
    """An utterance recomputes only when nobody else can do without pages."""
    for key in "vx":
        assert pair.speak(Speech(f"uses {key}", key, [1], 1, 0), prompts) is not None
    assert pair.voices.usage().voice_pages == 3
    before = pair.recomputes
    speech = Speech("long", "w", speech_tokens(180, 1), 60, 0)
    assert pair.speak(speech, prompts) is not None
    assert pair.recomputes == before
