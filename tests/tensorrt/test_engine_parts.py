"""Streams whose networks are engines against streams whose networks are torch modules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from small_engines import FLOWS, SHAPES, VOCODERS, engines
from torch import Tensor

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.flow.page_store import PastLayout
from cosyvoice_runtime.flow.torch.call_pages import PagePlaces
from cosyvoice_runtime.flow.torch.pages import PagedPast
from cosyvoice_runtime.flow.torch.stream import FlowStream
from cosyvoice_runtime.tensorrt.token2wav_engines import Token2WavEngines
from cosyvoice_runtime.vocoder.torch import HiFT
from onnx_network import OnnxNetwork
from small_flow import random_flow, random_prompt, random_tokens
from small_hift import published_tensors, random_mel
from vocoder_calls import open_state, stream

TOLERANCE = 1e-4
HOPS = [[25, 25, 60, 7], [3, 47, 50, 25], [120, 1, 1, 1]]
"""Tokens of three utterances, call by call."""


@pytest.fixture(scope="module", params=FLOWS)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module", params=["exact", "padded"])
def installed(
    request: pytest.FixtureRequest, family: str, tmp_path_factory: pytest.TempPathFactory
) -> Token2WavEngines:
    return engines(tmp_path_factory.mktemp("graphs"), OnnxNetwork, request.param == "padded", family)


def spoken(flow_stream: FlowStream, prefixed: bool) -> list[list[Tensor]]:
    """Mel of three utterances side by side, call by call."""
    prompts = [random_prompt(length, seed=length) for length in (40, 0, 75)]
    voices = [flow_stream.prefix(prompt) if prefixed else prompt for prompt in prompts]
    states = [flow_stream.open(voice) for voice in voices]
    calls = []
    for call, hops in enumerate(zip(*HOPS, strict=True)):
        for row, (state, hop) in enumerate(zip(states, hops, strict=True)):
            state.push(random_tokens(hop, seed=10 * row + call), last=call == 3)
        calls.append(flow_stream.advance(states))
    return calls


def assert_equal(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    for mel, wanted in zip(actual, expected, strict=True):
        assert mel.shape == wanted.shape
        assert wanted.numel() == 0 or (mel - wanted).abs().max() < TOLERANCE


@pytest.mark.parametrize("pages", [40, 0], ids=["incremental", "recompute"])
def test_streamed_mel_equals_that_of_torch(installed: Token2WavEngines, family: str, pages: int) -> None:
    config = FLOWS[family]
    flow, reference = random_flow(compiled=installed, config=config), random_flow(config=config)
    ours, theirs = FlowStream(flow, pages), FlowStream(reference, pages)
    for prefixed in (False, True):
        for actual, expected in zip(spoken(ours, prefixed), spoken(theirs, prefixed), strict=True):
            assert_equal(actual, expected)
    assert ours.recomputing == theirs.recomputing


def test_an_utterance_longer_than_the_engines_is_refused_at_its_tokens(
    installed: Token2WavEngines, family: str
) -> None:
    flow = random_flow(compiled=installed, config=FLOWS[family])
    flow_stream = FlowStream(flow, 10)
    state = flow_stream.open(random_prompt(50, seed=1))
    state.push(random_tokens(SHAPES.max_tokens - 50, seed=1))
    with pytest.raises(InvalidInput, match=r"at most 250 tokens \(10 s\), prompt included"):
        state.push([1])


def test_streamed_waveform_equals_that_of_torch(installed: Token2WavEngines, family: str) -> None:
    config = VOCODERS[family]
    reference = HiFT.from_tensors(config, published_tensors(config))
    hift = HiFT.from_tensors(config, published_tensors(config), decoder=installed.decoding())
    mels = [random_mel(frames, seed=frames).split(size, 1) for frames, size in ((150, 50), (90, 30))]

    def waves(vocoder: HiFT) -> list[Tensor]:
        states = [open_state(config, vocoder.utterance_noise(row)) for row in range(2)]
        return [
            wave
            for call in range(3)
            for wave in stream(vocoder, states, [mel[call] for mel in mels], [call == 2] * 2)
        ]

    assert_equal(waves(hift), waves(reference))


def test_a_batch_is_split_and_put_together_again(tmp_path: Path) -> None:
    """One row at a time, as for long utterances."""
    many = random_flow(compiled=engines(tmp_path, OnnxNetwork, padded=False))
    split = engines(tmp_path, OnnxNetwork, padded=True)
    assert split.fit_flow(SHAPES.longest).rows == 1
    one = random_flow(compiled=split)
    prompts = [random_prompt(30, seed=1), random_prompt(0, seed=2), random_prompt(12, seed=3)]
    tokens = [random_tokens(110, seed=row) for row in range(3)]
    with torch.inference_mode():
        assert_equal(one.generate(prompts, tokens), many.generate(prompts, tokens))


def places(pages: Tensor, table: Tensor, page: Tensor, before: int) -> PagePlaces:
    rows = torch.zeros(len(table))
    return PagePlaces(pages, table, page, torch.arange(3), before, rows, rows + 3)


def test_past_is_gathered_straight_into_what_the_network_reads() -> None:
    """One copy: zero pages fill it up in front and below, and nothing is padded afterwards."""
    layout = PastLayout(heads=2, head_dim=4)
    layout.add_attention()
    pages = torch.randn(5, 1, 3, 2, 2, 4)
    pages[0] = 0  # nothing is written there
    table, page = torch.tensor([[3, 2, 4]]), torch.full((1, 3), 4)
    past = PagedPast(places(pages, table, page, 2), torch.zeros(1, 0), torch.zeros(1, 0), None)
    assert past.frames == 6
    before = past.before(layout, torch.zeros(1, 3), 3)
    exact = torch.cat([pages[3, 0, :, 0], pages[2, 0, :, 0]])
    assert torch.equal(before.keys.whole()[0, 0], exact)
    larger = before.keys.padded(rows=2, frames=12)
    assert larger.shape == (1, 2, 12, 2, 4)
    captured = torch.full(larger.shape, torch.nan)
    assert larger.into(captured) is captured
    assert torch.equal(captured[0, 0, 6:], exact)
    assert captured.count_nonzero() == exact.count_nonzero()
    assert torch.equal(larger.rows(0, 1).whole(), captured[:, :1])
    with pytest.raises(ValueError, match="7 frames are no whole pages of 3"):
        before.values.padded(rows=1, frames=7)


def test_first_call_of_an_utterance_has_no_past() -> None:
    layout = PastLayout(heads=2, head_dim=4)
    layout.add_attention()
    pages, table = torch.randn(5, 1, 3, 2, 2, 4), torch.tensor([[4], [3]])
    nothing = torch.zeros(2, 0)
    past = PagedPast(places(pages, table, table.expand(2, 3), 0), nothing, nothing, None)
    assert past.before(layout, torch.zeros(2, 3), 3).keys.shape == (1, 2, 0, 2, 4)
