from __future__ import annotations

import pytest
import torch

from capture_fake import TracingCapture, play_back
from cosyvoice_runtime.gpu.cuda_graphs import CapturedGraph
from cosyvoice_runtime.lm.generation import Generation, TokenLimits
from cosyvoice_runtime.lm.prefills import Prefill
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.torch import device_steps, prefill_graphs
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM
from cosyvoice_runtime.lm.torch.prefill_graphs import GraphedPrefills, prompt_shapes
from cosyvoice_runtime.lm.torch.slot_draws import SlotTables, draw_plain

SLOTS, MAX_LEN = 6, 96
SIZES = (16, 24, 64)


@pytest.fixture(autouse=True)
def _small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefill_graphs, "PROMPT_SIZES", SIZES)
    monkeypatch.setattr(prefill_graphs, "TEXT_SPANS", (48,))


class Passes:
    """Captured passes over a cache in which some slots have spoken."""

    def __init__(
        self, lm: SpeechLM, spoken: dict[int, int] | None = None, capture=play_back, feed=None, batch=4
    ) -> None:
        self.lm = lm
        self.cache = KVCache(lm.config, SLOTS, MAX_LEN)
        self.tables = SlotTables(lm.config, SLOTS, MAX_LEN, lm.device)
        self.passes = GraphedPrefills(lm, self.cache, batch, draw_plain, self.tables, capture, feed)
        for slot, length in (spoken or {}).items():
            embeddings = lm.speech_embedding(torch.arange(length) % 70)
            lm.prefill(embeddings, 0, self.cache.view(slot, slot + 1))
            self.cache.lengths[slot] = length

    def prefill(self, slot: int, positions: int, seed: int = 0) -> Prefill:
        """Of a prompt; in a slot that has spoken, of what follows."""
        prompt = Prompt([(7 * i) % 80 for i in range(positions - 4)], prompt_speech=[slot, 69])
        options = SamplingOptions(seed=seed, repetition_penalty=1.2 if slot % 2 else 1.0)
        sequence = Generation(self.lm.config, options, prompt.prompt_speech, TokenLimits(9, 9))
        sequence.slot = slot
        return Prefill(sequence, prompt.segments(), int(self.cache.lengths[slot]))


@pytest.mark.parametrize("sizes", [[15], [16], [17], [5, 24], [24, 9, 25], [64], [60, 5, 33, 16]], ids=str)
@torch.inference_mode()
def test_captured_passes_feed_and_draw_as_the_network_does(lm: SpeechLM, sizes: list[int]) -> None:
    spoken = {1: 7, 3: MAX_LEN}
    slots = [0, 5, 2, 4][: len(sizes)]
    compare(lm, spoken, dict(zip(slots, sizes, strict=True)), play_back)


@pytest.mark.parametrize("sizes", [{1: 5}, {1: 16, 2: 6}, {4: 7}, {4: 8, 2: 5, 0: 9}], ids=str)
@torch.inference_mode()
def test_captured_passes_continue_as_the_network_does(lm: SpeechLM, sizes: dict[int, int]) -> None:
    """Spans end at 48 and 96 positions; slot 0 begins with the others."""
    compare(lm, {1: 7, 2: 20, 3: MAX_LEN, 4: 41}, sizes, play_back)


@pytest.mark.parametrize("sizes", [{0: 20, 2: 9}, {0: 6, 1: 5}], ids=["whole", "continued"])
@torch.inference_mode()
@pytest.mark.slow
def test_captured_passes_read_nothing_on_the_host(
    lm: SpeechLM, sizes: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traced, they repeat the operations alone; what the host decided while capturing stays."""
    monkeypatch.setattr(prefill_graphs, "PROMPT_SIZES", (24,))
    monkeypatch.setattr(prefill_graphs, "TEXT_SPANS", ())
    compare(lm, {1: 7}, sizes, TracingCapture(), batch=2)


def compare(lm: SpeechLM, spoken: dict[int, int], sizes: dict[int, int], capture, batch: int = 4) -> None:
    """One pass for slots of these sizes, and each fed and drawn for alone."""
    captured, eager = Passes(lm, spoken, capture, batch=batch), Passes(lm, spoken)
    group = [captured.prefill(slot, size, slot) for slot, size in sizes.items()]
    ids = captured.passes.run(group)
    for row, (slot, prefill) in enumerate(zip(sizes, group, strict=True)):
        view = eager.cache.view(slot, slot + 1)
        logits = lm.prefill(lm.embed(prefill.segments), prefill.start, view)
        slot_of = torch.tensor([slot])
        eager.tables.set(slot_of, [prefill.sequence])
        assert ids[row] == draw_plain(logits[None], slot_of, torch.ones_like(slot_of), eager.tables)
        assert captured.cache.lengths[slot] == prefill.end
        fed = [each.cache.data[:, :, slot, :, : prefill.end] for each in (captured, eager)]
        torch.testing.assert_close(*fed, rtol=0, atol=1e-4)
    for name in ("counts", "factors", "tokens", "history", "seen"):
        assert torch.equal(getattr(captured.tables, name), getattr(eager.tables, name)), name


def test_padding_that_ends_behind_the_cache_takes_no_graph(lm: SpeechLM) -> None:
    passes = Passes(lm, {2: MAX_LEN - 17, 3: MAX_LEN - 15})
    assert passes.passes.fits([passes.prefill(2, 6)])
    assert not passes.passes.fits([passes.prefill(3, 6)])


@torch.inference_mode()
def test_who_is_not_fed_keeps_what_it_has_said(lm: SpeechLM) -> None:
    """A pass of three takes four slots, one of which has nothing to feed."""
    spoken = {0: 40, 1: MAX_LEN - 1, 2: 1}
    passes, before = Passes(lm, spoken), Passes(lm, spoken)
    passes.passes.run([passes.prefill(slot, 20) for slot in (3, 4, 5)])
    for slot, length in spoken.items():
        kept = [each.cache.data[:, :, slot, :, :length] for each in (passes, before)]
        assert torch.equal(*kept)
        assert torch.equal(passes.tables.counts[slot], before.tables.counts[slot])
        assert passes.cache.lengths[slot] == length


def test_shapes_grow_to_all_prompts_and_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefill_graphs, "PREFILL_POSITIONS", 64)
    shapes = list(prompt_shapes(3, 60))
    whole = [(shape.rows, shape.positions) for shape in shapes if shape.span is None]
    assert whole == [(1, 16), (1, 24), (1, 60), (2, 16), (2, 24), (3, 16)]
    assert [shape for shape in shapes if shape.span] == [
        (rows, 16, span) for rows in (1, 2, 3) for span in (48, 60)
    ]


@pytest.mark.parametrize(
    ("sizes", "shape"), [([3], (1, 16)), ([16, 16], (2, 16)), ([24, 3, 3], (4, 24)), ([25], (1, 64))]
)
def test_a_pass_takes_the_next_larger_graph(lm: SpeechLM, sizes, shape) -> None:
    replayed = []

    def capture(compute):
        place = len(captured)
        captured.append(compute())
        return CapturedGraph(lambda: replayed.append(place), captured[-1], compute)

    captured = []
    passes = Passes(lm, capture=capture)
    passes.passes.run([passes.prefill(slot, max(size, 5)) for slot, size in enumerate(sizes)])
    shapes = list(reversed(list(prompt_shapes(4, MAX_LEN))))
    assert [shapes[place] for place in replayed] == [(*shape, None)]


class SpanlessFeed:
    """The network's own pass, which says that spans change nothing."""

    spanless = True

    def __init__(self, lm: SpeechLM) -> None:
        self._lm = lm

    def __call__(self, *given):
        return self._lm.prefill_codes(*given)


@torch.inference_mode()
def test_texts_of_all_spans_share_graphs_where_spans_change_nothing(lm: SpeechLM) -> None:
    shapes = list(prompt_shapes(4, MAX_LEN))
    each, shared = Passes(lm).passes, Passes(lm, feed=SpanlessFeed(lm)).passes
    assert len(each) == len({id(each.graph(shape)) for shape in shapes}) == len(shapes)
    served = {shape._replace(span=shape.span and MAX_LEN) for shape in shapes}
    assert len(shared) == len({id(shared.graph(shape)) for shape in shapes}) == len(served) < len(shapes)
    for shape in shapes:
        assert shared.graph(shape) is shared.graph(shape._replace(span=shape.span and MAX_LEN))


def tokens(decoder: BatchDecoder, generations: list[Generation]) -> list[list[int]]:
    while decoder.busy:
        decoder.step()
    return [generation.tokens for generation in generations]


def said(seed: int) -> SamplingOptions:
    return SamplingOptions(seed=seed, min_tokens=5, max_tokens=5)


@pytest.mark.parametrize("sizes", [[90], [70, 90, 80], [70, 10, 90]], ids=str)
def test_prompts_too_long_for_a_graph_are_fed_without_one(lm: SpeechLM, sizes: list[int]) -> None:
    prompts = [Prompt([(5 * i) % 80 for i in range(size)]) for size in sizes]
    alone = []
    for seed, prompt in enumerate(prompts):
        decoder = BatchDecoder(lm, 1, 128, capture=play_back)
        alone += tokens(decoder, [decoder.add(prompt, said(seed))])
    together = BatchDecoder(lm, 3, 128, capture=play_back, prefill_batch=3)
    assert (
        tokens(together, [together.add(prompt, said(seed)) for seed, prompt in enumerate(prompts)]) == alone
    )


def test_while_one_speaks_each_step_feeds_prompts_of_few_positions(
    lm: SpeechLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first two fit into one pass beside a step; the fourth has too many positions and goes alone."""
    monkeypatch.setattr(device_steps, "STEP_POSITIONS", 48)
    decoder = BatchDecoder(lm, 6, MAX_LEN, capture=play_back, prefill_batch=4)
    speaker = decoder.add(Prompt([4, 2]), SamplingOptions(seed=1, min_tokens=20, max_tokens=20))
    while not speaker.tokens:
        decoder.step()
    later = [decoder.add(Prompt([3] * size), said(size)) for size in (20, 20, 20, 50)]
    began: dict[Generation, int] = {}
    for number in range(9):
        spoken = len(speaker.tokens)
        decoder.step()
        assert len(speaker.tokens) == spoken + 1
        began |= {each: number for each in later if each.tokens and each not in began}
    assert [began[each] for each in later] == [1, 1, 2, 3]


def test_while_nobody_speaks_all_prompts_are_fed_at_once(
    lm: SpeechLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_steps, "STEP_POSITIONS", 48)
    decoder = BatchDecoder(lm, 6, MAX_LEN, capture=play_back, prefill_batch=4)
    generations = [decoder.add(Prompt([3] * size), said(size)) for size in (20, 20, 20, 50)]
    decoder.step()
    decoder.step()
    assert all(each.tokens for each in generations)
