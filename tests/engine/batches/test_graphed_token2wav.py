"""token2wav with a stand-in for CUDA graphs, as a GPU's server has it."""

from __future__ import annotations

import itertools
import logging
import weakref
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from spoken import alone, prompt_tensors, speech_tokens

from capture_fake import TracingCapture
from cosyvoice_runtime.engine.runtimes import torch_graphs
from cosyvoice_runtime.engine.runtimes import torch_runtime as load
from cosyvoice_runtime.flow.torch.call_inputs import BatchShape
from cosyvoice_runtime.flow.torch.graphed_calls import CallBuckets
from cosyvoice_runtime.gpu.partitions.partition import GpuPart, GpuParts
from cosyvoice_runtime.token2wav.token2wav import Token2Wav
from cosyvoice_runtime.vocoder.torch import HiFTStream

BUCKETS = CallBuckets(rows=(2,), blocks=(2,), before=(2, 6))
CALLS = 2 + 1
TOLERANCE = 2e-3
"""F0 comes from the mel: its rounding, which differs from CPU to CPU, moves the waveform most."""


@pytest.fixture(scope="module")
def capture() -> TracingCapture:
    return TracingCapture()


@pytest.fixture(scope="module")
def graphed(torch_settings, capture) -> Token2Wav:
    token2wav = load.load_token2wav(torch_settings)
    assert token2wav.capture(BUCKETS, capture) == CALLS
    return token2wav


def test_every_chunk_of_a_stream_is_replayed(graphed, capture, torch_token2wav):
    """Of each call: a start, a step for each step of the solver, a vocoder."""
    prompts = [prompt_tensors(graphed, tokens, seed) for seed, tokens in enumerate((30, 35))]
    tokens = [speech_tokens(140, seed) for seed in range(2)]
    states = [graphed.open(prompt.flow_prompt(), noise_seed=7) for prompt in prompts]
    waves: list[list[np.ndarray]] = [[], []]
    edges = [0, 28, 53, 103, 140]
    for start, end in itertools.pairwise(edges):
        before = capture.replays
        for state, row in zip(states, tokens, strict=True):
            graphed.push(state, row[start:end], last=end == 140)
        for kept, wave in zip(waves, graphed.advance(states), strict=True):
            kept.append(wave)
        assert capture.replays == before + 1 + graphed.flow.flow.solver.num_steps + 1
    for state, prompt, row, wave in zip(states, prompts, tokens, waves, strict=True):
        graphed.close(state)
        whole = alone(torch_token2wav, prompt, row)
        np.testing.assert_allclose(np.concatenate(wave), whole, atol=TOLERANCE)


def test_flow_and_vocoder_are_captured_each_on_its_device(torch_settings, torch_token2wav):
    token2wav, of_flow, of_vocoder = load.load_token2wav(torch_settings), TracingCapture(), TracingCapture()
    one_call = CallBuckets(rows=(1,), blocks=(2,), before=(2,))
    assert token2wav.capture(one_call, of_flow, of_vocoder=of_vocoder) == 2
    prompt, tokens = prompt_tensors(token2wav, 30), speech_tokens(40, 3)
    state = token2wav.open(prompt.flow_prompt(), noise_seed=7)
    token2wav.push(state, tokens, last=True)
    [wave] = token2wav.advance([state])
    token2wav.close(state)
    np.testing.assert_allclose(wave, alone(torch_token2wav, prompt, tokens), atol=TOLERANCE)
    assert of_flow.replays % (1 + token2wav.flow.flow.solver.num_steps) == 0 < of_flow.replays
    assert of_vocoder.replays > 0


def test_the_vocoder_computes_concurrently_with_the_flow_and_mels_stay_until_it_has(graphed, monkeypatch):
    events: list[str] = []
    mels: list[weakref.ref] = []
    flow, vocoder = graphed.flow.mels, graphed.vocoder.advance

    @contextmanager
    def concurrent():
        events.append("concurrent")
        yield
        events.append("after")

    def noted_mels(states):
        events.append("flow")
        given = flow(states)
        mels.extend(map(weakref.ref, given))
        return given

    def noted_waves(*inputs):
        events.append("vocoder")
        return vocoder(*inputs)

    monkeypatch.setattr(graphed.flow, "mels", noted_mels)
    monkeypatch.setattr(graphed.vocoder, "advance", noted_waves)
    monkeypatch.setattr(graphed.vocoder, "concurrent", concurrent)
    state = graphed.open(prompt_tensors(graphed, 30).flow_prompt(), noise_seed=7)
    graphed.push(state, speech_tokens(40, 3), last=True)
    waves = graphed.launch([state])
    graphed.close(state)
    del state
    assert events == ["flow", "concurrent", "vocoder", "after"]
    assert all(mel() is not None for mel in mels)
    assert len(waves()[0])
    del waves
    assert [mel() for mel in mels] == [None] * len(mels)


class Stream:
    """A stand-in that notes who waits for whom."""

    def __init__(self, name: str, events: list[str]) -> None:
        self.name, self._events = name, events

    def wait_stream(self, other: Stream) -> None:
        self._events.append(f"{self.name} waits for {other.name}")


def test_the_vocoder_of_a_part_waits_for_the_flow_and_computes_in_a_stream_of_its_own(monkeypatch):
    events: list[str] = []
    flow, second = Stream("flow", events), Stream("second", events)

    @contextmanager
    def entered(stream: Stream):
        events.append(f"in {stream.name}")
        yield

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: flow)
    monkeypatch.setattr(torch.cuda, "stream", entered)
    hift = SimpleNamespace(config=None, device="cuda")
    with HiFTStream(hift, own_stream=second).concurrent():  # type: ignore[arg-type]
        assert events == ["second waits for flow", "in second"]
    with HiFTStream(hift).concurrent():  # type: ignore[arg-type]
        assert len(events) == 2


def test_flow_and_vocoder_of_each_lane_are_captured_in_the_streams_of_its_part(torch_settings, monkeypatch):
    streams: list[tuple[str | None, str | None]] = []

    def noted(self, buckets, capture, fused=None, of_vocoder=None):
        names = [getattr(getattr(each, "_capture", each), "name", None) for each in (capture, of_vocoder)]
        streams.append((names[0], names[1]))
        return 1

    class Named:
        def __init__(self, device, stream=None, alone=True) -> None:
            self.name = None if stream is None else stream.name

    def part(name: str) -> GpuPart:
        return GpuPart(Stream(f"{name} flow", []), 8, Stream(f"{name} vocoder", []))

    monkeypatch.setattr(torch_graphs.TorchToken2Wav, "capture", noted)
    monkeypatch.setattr(torch_graphs, "CudaGraphCapture", Named)
    few = GpuParts(part("steps"), part("few turns"), (part("few first"),))
    parts = GpuParts(part("steps"), part("turns"), (part("first"),), few)
    token2wav = load.load_token2wav(torch_settings)
    token2wav.torch_vocoder.own_stream = parts.turns.second
    settings = torch_settings.replace(cuda_graphs=True)
    torch_graphs.capture_graphs(token2wav, settings, 1, parts.turns)
    beside, later = torch_graphs.concurrent_networks(token2wav, settings, 1, parts, None)
    assert streams == [(f"{name} flow", f"{name} vocoder") for name in ("turns", "first")]
    monkeypatch.setattr(torch_graphs, "as_current", lambda device: nullcontext())
    monkeypatch.setattr(torch_graphs, "on_own_stream", lambda device: nullcontext())
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda device: SimpleNamespace(synchronize=lambda: None)
    )
    later(lambda: None)
    assert streams[2:] == [(f"{name} flow", f"{name} vocoder") for name in ("few turns", "few first")]
    assert [turns.token2wav.torch_vocoder.own_stream.name for turns in beside] == [
        "first vocoder", "few turns vocoder", "few first vocoder",
    ]  # fmt: skip


@pytest.mark.parametrize(("page_format", "coded"), [("auto", False), ("int8", True)])
def test_pages_are_kept_as_the_settings_say(torch_settings, page_format, coded):
    token2wav = load.load_token2wav(torch_settings.replace(page_format=page_format))
    assert token2wav.torch_flow.flow.codes_pages == coded
    assert (token2wav.torch_flow.pool.estimator_scales is not None) == coded


def test_graphs_are_captured_where_the_settings_want_them(torch_settings, monkeypatch, caplog):
    monkeypatch.setattr(torch_graphs, "CudaGraphCapture", lambda *_: TracingCapture())
    few = {"blocks": (1,), "before": (2,)}
    monkeypatch.setattr(torch_graphs.CallBuckets, "up_to", lambda rows, **_: CallBuckets((rows,), **few))
    caplog.set_level(logging.INFO)
    token2wav = load.load_token2wav(torch_settings)
    torch_graphs.capture_graphs(token2wav, torch_settings.replace(cuda_graphs=False), 1)
    assert "every kernel is launched" in caplog.text
    torch_graphs.capture_graphs(token2wav, torch_settings, 1)
    assert "CUDA graphs of 2 calls" in caplog.text


def test_more_rows_than_a_gpu_gains_from_are_not_captured():
    assert CallBuckets.up_to(5).rows == [1, 2, 4, 5]
    assert CallBuckets.up_to(1024).rows == [1, 2, 4, 8, 16, 32]


def test_graphs_cover_a_prompt_of_30_s_and_30_s_of_speech():
    """The last call of 60 s looks back on 59 blocks of a second."""
    assert CallBuckets.up_to(8).fitting(BatchShape(8, 25, 59), 25) == BatchShape(8, 25, 64)
    assert CallBuckets.up_to(8).fitting(BatchShape(8, 100, 56), 25) == BatchShape(8, 100, 64)
    assert CallBuckets.up_to(8, any_past=True).fitting(BatchShape(8, 25, 59), 25) == BatchShape(8, 25, 64)
    one = CallBuckets.up_to(8, any_past=True, starts_too=True)
    assert one.fitting(BatchShape(8, 25, 0), 25) == BatchShape(8, 25, 64)


def test_long_slow_speech_is_replayed_part_by_part(graphed, capture, torch_token2wav):
    prompt, tokens = prompt_tensors(graphed, 30, 3), speech_tokens(110, 3)
    waves: list[np.ndarray] = []
    before = capture.replays
    for token2wav in (graphed, torch_token2wav):
        state = token2wav.open(prompt.flow_prompt(), noise_seed=7, speed=0.5)
        token2wav.push(state, tokens, last=True)
        waves += token2wav.advance([state])
        token2wav.close(state)
    np.testing.assert_allclose(waves[0], waves[1], atol=TOLERANCE)
    assert graphed.flow.eager_calls == 0
    calls, windows = 3, 5  # of 2 chunks, and of 100 frames at half the speed
    assert capture.replays == before + calls * (1 + graphed.flow.flow.solver.num_steps) + windows
