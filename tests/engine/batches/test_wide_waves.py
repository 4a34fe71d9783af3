"""Utterances whose numbers leave the range of float16 go on in float32, and nobody else hears of it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from spoken import alone, chunks_of, prompt_tensors, speech_tokens

from cosyvoice_runtime.engine.batches import WaveChunk, WaveOutcome, load, open_router, wide_waves
from cosyvoice_runtime.engine.batches.chunk import BrokenUtteranceError
from cosyvoice_runtime.engine.batches.load import follow_waves
from cosyvoice_runtime.engine.batches.wide_waves import METRIC, MOST_AT_ONCE, WideWaves
from cosyvoice_runtime.engine.runtimes import torch_runtime
from cosyvoice_runtime.errors import (
    FLOW,
    VOCODER,
    CheckpointError,
    NotFiniteError,
    OverloadedError,
    WithdrawnError,
)
from cosyvoice_runtime.gpu import memory
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.metrics.page import read_samples
from cosyvoice_runtime.settings import Token2WavSettings
from damaged import damaged
from making import make_checkpoint

BEYOND = 1e6
"""Out of float16's range, and well within float32's; a norm follows the layer that reads it."""
TOKENS = [token or 1 for token in speech_tokens(90, 0)]
BAD_TOKEN = next(token for token in range(1, 6561) if token not in TOKENS)
ROW = slice(BAD_TOKEN, BAD_TOKEN + 1)
ENDS = [30, 60, 90]
NAN = float("nan")
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def half(torch_settings) -> Token2WavSettings:
    return torch_settings.replace(dtype="float16")


@contextmanager
def followed(settings: Token2WavSettings, directory: Path) -> Iterator[WideWaves]:
    metrics = Metrics("token2wav", directory)
    router = open_router(settings, metrics)
    with closing(follow_waves(settings, router, metrics)) as waves, closing(router):
        yield waves


def sent(waves: WideWaves, chunk: WaveChunk) -> Future[WaveOutcome]:
    outcome: Future[WaveOutcome] = Future()
    waves.submit(chunk, outcome.set_result)
    return outcome


def answer(waves: WideWaves, chunk: WaveChunk) -> WaveOutcome:
    return sent(waves, chunk).result(TIMEOUT_S)


def apart(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def counted(directory: Path) -> dict[str, float]:
    return {each.labels["stage"]: each.value for each in read_samples(directory) if each.name == METRIC}


@pytest.fixture(scope="module")
def wide_checkpoint(half, tmp_path_factory) -> Path:
    """One token's embedding leaves the range of float16."""
    copy = tmp_path_factory.mktemp("wide") / "checkpoint"
    return damaged(half.checkpoint_dir, copy, "flow.pt", "input_embedding.weight", BEYOND, ROW)


@pytest.fixture(scope="module")
def wide(half, wide_checkpoint) -> Token2WavSettings:
    return half.replace(checkpoint_dir=wide_checkpoint)


@pytest.fixture(scope="module")
def single(wide):
    """The networks in float32."""
    return torch_runtime.load_token2wav(wide.replace(dtype="float32"))


def test_a_stream_that_breaks_in_its_middle_is_heard_to_its_end(wide, single, tmp_path, caplog):
    tokens = [*TOKENS[:40], BAD_TOKEN, *TOKENS[41:]]
    voice = prompt_tensors(single, 30)
    expected = alone(single, voice, tokens)
    with followed(wide, tmp_path) as waves, caplog.at_level(logging.WARNING):
        heard = [answer(waves, chunk) for chunk in chunks_of("a", tokens, ENDS, "v", voice)]
        assert len(waves) == 0
    assert not [each for each in heard if isinstance(each, Exception)]
    whole = np.concatenate(heard)
    assert whole.shape == expected.shape
    first = len(heard[0])
    assert 0 < first < len(whole)
    # Of half precision, by which the phase of random networks drifts.
    assert 1e-5 < apart(heard[0], expected[:first]) < 0.7
    np.testing.assert_allclose(whole[first:], expected[first:], atol=2e-3, rtol=0)
    assert counted(tmp_path) == {FLOW: 1, VOCODER: 0}
    assert "utterance a: flow gave NaN or infinity; it goes on in float32" in caplog.messages


def test_chunks_of_cosyvoice300m_keep_their_schedule(half, tmp_path, tmp_path_factory):
    made = make_checkpoint(tmp_path_factory.mktemp("made") / "tiny", "tiny", seed=5, family="cosyvoice300m")
    tokens = [token % 4000 + 1 for token in speech_tokens(260, 0)]
    tokens[150] = bad = 4050
    row = slice(bad, bad + 1)
    checkpoint = damaged(made, tmp_path / "c", "flow.pt", "input_embedding.weight", BEYOND, row)
    settings = half.replace(checkpoint_dir=checkpoint, max_batch=1)
    networks = torch_runtime.load_wide(settings).token2wav
    voice, ends = prompt_tensors(networks, 30), [130, 260]
    with followed(settings, tmp_path) as waves:
        heard = [answer(waves, chunk) for chunk in chunks_of("a", tokens, ends, "v", voice)]
    state = networks.open(voice.flow_prompt(), 7)
    expected = []
    for start, end in ((0, 130), (130, 260)):
        networks.push(state, tokens[start:end], end == 260)
        expected += networks.advance([state])
    assert [len(wave) for wave in heard] == [len(wave) for wave in expected]
    np.testing.assert_allclose(heard[1], expected[1], atol=2e-3, rtol=0)
    assert counted(tmp_path)[FLOW] == 1


def test_others_go_on_in_half_precision(wide, half, tmp_path):
    voice = prompt_tensors(torch_runtime.load_token2wav(half), 30)
    bad_tokens = [BAD_TOKEN, *TOKENS[1:]]
    with followed(wide, tmp_path) as waves:
        bad = [sent(waves, chunk) for chunk in chunks_of("bad", bad_tokens, ENDS, "v", voice)]
        good = [answer(waves, chunk) for chunk in chunks_of("good", TOKENS, ENDS, "v", voice)]
        rescued = [each.result(TIMEOUT_S) for each in bad]
    assert not [each for each in (*good, *rescued) if isinstance(each, Exception)]
    assert sum(map(len, rescued)) == sum(map(len, good))
    assert counted(tmp_path)[FLOW] == 1


def test_numbers_that_float32_does_not_hold_either_end_the_utterance(half, tmp_path, caplog):
    checkpoint = damaged(half.checkpoint_dir, tmp_path / "c", "hift.pt", "conv_post.bias", NAN)
    settings = half.replace(checkpoint_dir=checkpoint)
    voice = prompt_tensors(torch_runtime.load_token2wav(settings), 30)
    first, second, _ = chunks_of("a", TOKENS, ENDS, "v", voice)
    with followed(settings, tmp_path) as waves:
        outcome = answer(waves, first)
        assert len(waves) == 0
        after = answer(waves, second)
    assert isinstance(outcome, NotFiniteError)
    assert outcome.stage == VOCODER
    assert isinstance(after, Exception)
    assert "utterance a can't go on in float32: vocoder: NaN or infinity in the samples" in caplog.messages


def test_networks_that_cannot_be_loaded_end_the_utterance(wide, single, tmp_path, monkeypatch):
    def fails(_: Token2WavSettings) -> None:
        raise CheckpointError("there is no memory")

    monkeypatch.setattr(torch_runtime, "load_wide", fails)
    voice = prompt_tensors(single, 30)
    with followed(wide, tmp_path) as waves:
        [outcome] = [answer(waves, chunk) for chunk in chunks_of("a", [BAD_TOKEN] * 30, [30], "v", voice)]
    assert isinstance(outcome, NotFiniteError)


def test_a_cancel_ends_what_waits_for_float32(wide, single, tmp_path, monkeypatch):
    loading, cancelled = Future(), Future()

    def waits(_: Token2WavSettings) -> SimpleNamespace:
        loading.set_result(None)
        cancelled.result(TIMEOUT_S)
        raise CheckpointError("too late")

    monkeypatch.setattr(torch_runtime, "load_wide", waits)
    [chunk, _] = chunks_of("a", [BAD_TOKEN] * 60, [30, 60], "v", prompt_tensors(single, 30))
    with followed(wide, tmp_path) as waves:
        outcome = sent(waves, chunk)
        loading.result(TIMEOUT_S)
        assert len(answer(waves, WaveChunk.forgetting("a"))) == 0
        assert isinstance(outcome.result(TIMEOUT_S), WithdrawnError)
        assert len(waves) == 0
        cancelled.set_result(None)


def test_utterances_that_nobody_ends_are_forgotten(half, tmp_path):
    now = [0.0]
    voice = prompt_tensors(torch_runtime.load_token2wav(half), 30)
    metrics = Metrics("token2wav", tmp_path)
    with closing(open_router(half, metrics)) as router:
        waves = WideWaves(router, lambda: None, metrics, 60.0, lambda: now[0])
        for name, time_s in (("left", 0.0), ("spoken", 50.0), ("next", 70.0)):
            now[0] = time_s
            answer(waves, chunks_of(name, TOKENS, ENDS, "v", voice)[0])
        assert sorted(waves._utterances) == ["next", "spoken"]
        waves.close()


def test_float32_has_no_wider_networks(half, tmp_path):
    router = SimpleNamespace(submit=lambda chunk, deliver: deliver(np.zeros(len(chunk.tokens), np.float32)))
    waves = follow_waves(half.replace(dtype="float32"), router, Metrics("token2wav", tmp_path))
    assert len(answer(waves, WaveChunk("a", [1, 2], 0, False, "v", 7))) == 2
    assert len(waves) == 0
    waves.close()


def test_what_waits_at_the_end_of_service_is_heard(wide, single, tmp_path, monkeypatch):
    load_wide, closed = torch_runtime.load_wide, Future()

    def waits(settings: Token2WavSettings) -> object:
        closed.result(TIMEOUT_S)
        return load_wide(settings)

    monkeypatch.setattr(torch_runtime, "load_wide", waits)
    [chunk] = chunks_of("a", [BAD_TOKEN] * 30, [30], "v", prompt_tensors(single, 30))
    metrics = Metrics("token2wav", tmp_path)
    router = open_router(wide, metrics)
    waves = follow_waves(wide, router, metrics)
    outcome = sent(waves, chunk)
    router.close()
    closed.set_result(None)
    waves.close()
    assert len(outcome.result(0)) > 0


def test_an_utterance_keeps_its_voice_when_its_key_names_another(wide, single, tmp_path, monkeypatch):
    monkeypatch.setattr(load, "MAX_VOICES", 1)
    tokens = [*TOKENS[:40], BAD_TOKEN, *TOKENS[41:]]
    own, others = (prompt_tensors(single, 30, seed) for seed in (0, 1))
    first, second, third = chunks_of("a", tokens, ENDS, "v", own)
    with followed(wide, tmp_path) as waves:
        heard = [answer(waves, first)]
        for name, key in (("b", "w"), ("c", "v")):
            [chunk] = chunks_of(name, TOKENS[:30], [30], key, others)
            assert not isinstance(answer(waves, chunk), Exception)
        heard += [answer(waves, second), answer(waves, third)]
    expected = alone(single, own, tokens)[len(heard[0]) :]
    np.testing.assert_allclose(np.concatenate(heard[1:]), expected, atol=2e-3, rtol=0)


def test_long_utterances_end(wide, single, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(wide_waves, "LONGEST_S", 2.0)
    [chunk] = chunks_of("a", [BAD_TOKEN] * 30, [30], "v", prompt_tensors(single, 30))
    with followed(wide, tmp_path) as waves:
        assert isinstance(answer(waves, chunk), NotFiniteError)
    told = "utterance a can't go on in float32: it has 2.4 s, prompt included; the limit is 2 s"
    assert told in caplog.messages


def test_memory_is_given_back(wide, single, tmp_path, monkeypatch):
    load_wide, given_back = torch_runtime.load_wide, Counter()

    def counts(settings: Token2WavSettings) -> object:
        return load_wide(settings)._replace(give_back=lambda: given_back.update(["times"]))

    monkeypatch.setattr(torch_runtime, "load_wide", counts)
    chunks = chunks_of("a", [BAD_TOKEN] * 60, [30, 60], "v", prompt_tensors(single, 30))
    with followed(wide, tmp_path) as waves:
        for chunk in chunks:
            assert len(answer(waves, chunk)) > 0
    assert given_back["times"] == 2


def test_a_gpu_with_little_memory_of_its_limit_left_leaves_float32_to_the_cpu(half, monkeypatch):
    gib = 2**30
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (70 * gib, 80 * gib))
    monkeypatch.setattr(memory, "_limits", {0: 13 * gib})
    networks = torch_runtime.load_wide(half.replace(device="cuda:0"))
    assert networks.token2wav.flow.flow.device == torch.device("cpu")


def test_float32_takes_the_steps_of_the_checkpoint_where_none_are_given(half):
    networks = torch_runtime.load_wide(half.replace(ode_steps=0))
    assert networks.token2wav.flow.flow.solver.num_steps == 10


class HeldChunks:
    """A router that gives no outcome by itself.

    Attributes:
        outcomes: takes the outcome of each chunk, by the number in which it came.
        refuses: whether further chunks are refused.
    """

    def __init__(self) -> None:
        self.outcomes: list[Callable[[WaveOutcome], None]] = []
        self.refuses = False

    def submit(self, chunk: WaveChunk, deliver: Callable[[WaveOutcome], None]) -> None:
        if self.refuses:
            raise OverloadedError("too many wait")
        if not chunk.cancel:
            self.outcomes.append(deliver)


BROKEN = BrokenUtteranceError(FLOW, SimpleNamespace(tokens=[]))


@pytest.fixture
def held() -> HeldChunks:
    return HeldChunks()


@pytest.fixture
def may_load() -> Future[None]:
    """The networks fail to be loaded once this has a result."""
    return Future()


@pytest.fixture
def waves(held, may_load, tmp_path) -> Iterator[WideWaves]:
    def fails() -> None:
        may_load.result(TIMEOUT_S)
        raise CheckpointError("there is no memory")

    given = WideWaves(held, fails, Metrics("token2wav", tmp_path), 60.0)
    yield given
    if not may_load.done():
        may_load.set_result(None)
    given.close()


def chunk_of(name: str, position: int = 0) -> WaveChunk:
    return WaveChunk(name, [1], position, False, "v", 7)


def raises(_: WaveOutcome) -> None:
    raise OSError("nobody reads")


def test_a_cancelled_utterance_does_not_go_on(held, waves, tmp_path):
    outcome = sent(waves, chunk_of("a"))
    waves.submit(WaveChunk.forgetting("a"), raises)
    held.outcomes[0](BROKEN)
    assert outcome.result(0) is BROKEN
    assert counted(tmp_path) == {FLOW: 0, VOCODER: 0}


def test_a_refused_chunk_is_not_answered_as_well(held, waves, may_load):
    first = sent(waves, chunk_of("a"))
    held.refuses = True
    refused: Future[WaveOutcome] = Future()
    with pytest.raises(OverloadedError):
        waves.submit(chunk_of("a", 1), refused.set_result)
    held.outcomes[0](BROKEN)
    may_load.set_result(None)
    waves.close()
    assert first.result(0) is BROKEN
    assert not refused.done()


def test_a_reader_that_raises_leaves_the_next_chunk_its_outcome(held, waves, may_load):
    waves.submit(chunk_of("a"), raises)
    second = sent(waves, chunk_of("a", 1))
    held.outcomes[0](BROKEN)
    may_load.set_result(None)
    assert second.result(TIMEOUT_S) is BROKEN


def test_a_reader_that_raises_leaves_a_cancel_to_the_next_chunk(held, waves):
    waves.submit(chunk_of("a"), raises)
    second = sent(waves, chunk_of("a", 1))
    held.outcomes[0](BROKEN)
    waves.submit(WaveChunk.forgetting("a"), raises)
    assert isinstance(second.result(0), WithdrawnError)


def test_no_more_than_the_limit_go_on_at_once(held, waves, tmp_path):
    outcomes = [sent(waves, chunk_of(str(number))) for number in range(MOST_AT_ONCE + 1)]
    for deliver in held.outcomes:
        deliver(BROKEN)
    assert [outcome.done() for outcome in outcomes] == [False] * MOST_AT_ONCE + [True]
    assert outcomes[-1].result(0) is BROKEN
    assert counted(tmp_path)[FLOW] == MOST_AT_ONCE
    waves.submit(WaveChunk.forgetting("0"), raises)
    again = sent(waves, chunk_of("again"))
    held.outcomes[-1](BROKEN)
    assert not again.done()
