"""Rows of attention behind fused steps and prompts are what plain passes look at."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from capture_fake import play_back
from cosyvoice_runtime.flow.page_store import FIRST_PAGE
from cosyvoice_runtime.gpu.kernels.step_tiles import StepTile, StepTiles
from cosyvoice_runtime.lm.cache import CachePool
from cosyvoice_runtime.lm.kernels.fused_step import FusedStep
from cosyvoice_runtime.lm.kernels.prefill import FusedPrefill
from cosyvoice_runtime.lm.kernels.text_rows import text_rows
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.text_segment import MOST_TEXT
from cosyvoice_runtime.lm.torch import prefill_graphs
from cosyvoice_runtime.lm.torch.captured_rows import RING, WIDTHS, text_rows_plain
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder
from cosyvoice_runtime.lm.torch.device_steps import CapturedPasses
from cosyvoice_runtime.lm.torch.head_scores import HeadScores
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM
from cosyvoice_runtime.lm.torch.slot_draws import SlotWork
from making.architecture import TINY
from small_caches import MAX_LEN, own_slots, shared_pages

CONFIG = dataclasses.replace(TINY.speech_lm, text_vocab_size=100, speech_tokens=60)
HEADS = [(1, 3), (0, 1), (1, 0)]
TEXTS = [slice(1, 9), slice(3, 4), slice(14, 35)]
TILES = StepTiles(
    qkv=StepTile(16, 16, 64, 2),
    out=StepTile(16, 16, 64, 2),
    gated=StepTile(32, 16, 64, 2),
    down=StepTile(16, 16, 64, 2, ahead=2),
    head=StepTile(512, 16, 64, 2),
    keys=16,
)
ROUNDING = 2**-11
"""Of float16, relative to a share of 1."""


@pytest.fixture(scope="module")
def lm() -> SpeechLM:
    torch.manual_seed(5)
    lm = SpeechLM(CONFIG).requires_grad_(False)
    for module in lm.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight *= 3.0  # Attention is far from even.
    return lm


def filled(opened_cache, slots: int) -> tuple[KVCache, KVCache]:
    """Caches alike; passes over the second one keep queries."""
    caches = [opened_cache(CONFIG, slots) for _ in range(2)]
    caches[0].data[:, :, 0 if opened_cache is own_slots else FIRST_PAGE :].normal_()
    caches[1].data.copy_(caches[0].data)
    caches[1].keep_queries(CONFIG, HEADS)
    return caches[0], caches[1]


def found(cache: KVCache, slots: list[int], positions: list[int]) -> list[list[Tensor]]:
    """Rows of each sequence of the pass, by the kernel and by plain operations; another slot has none."""
    assert cache.kept is not None
    texts = torch.zeros(cache.slots, 2, dtype=torch.int32)
    for slot, text in zip(slots, TEXTS, strict=True):
        texts[slot] = torch.tensor([text.start, text.stop])
    both = []
    for compute in (text_rows, text_rows_plain):
        rows = torch.full((cache.slots, RING, MOST_TEXT), 2.0, dtype=torch.float16)
        idle, drawn = (
            torch.tensor([positions, slots, [work] * len(slots)]) for work in (SlotWork.IDLE, SlotWork.DRAW)
        )
        compute(cache.kept, cache, idle, texts, rows, WIDTHS[0])
        assert (rows == 2).all()
        compute(cache.kept, cache, drawn, texts, rows, WIDTHS[0])
        assert (rows != 2).any(2).sum() == len(slots)
        both.append(
            [
                rows[slot, position % RING, : text.stop - text.start].float()
                for slot, position, text in zip(slots, positions, TEXTS, strict=True)
            ]
        )
    return [list(each) for each in zip(*both, strict=True)]


def check(rows: list[Tensor], expected: Tensor) -> None:
    assert len(expected) == 1 or expected.max() > 1.5 / len(expected)  # A row of other heads would not do.
    for row in rows:
        torch.testing.assert_close(row, expected, rtol=0, atol=ROUNDING)


def seen(scores: HeadScores, place: int) -> Tensor:
    return scores.shares(TEXTS[place])[place].mean(0)[-1]


@pytest.mark.parametrize("opened_cache", [own_slots, shared_pages])
@torch.inference_mode()
def test_rows_behind_a_fused_step_are_what_a_plain_step_looks_at(lm, opened_cache):
    slots = [3, 1, 0]
    plain, kept = filled(opened_cache, 5)
    own = torch.tensor(slots)
    tokens, places = torch.tensor([7, 3, 5]), torch.tensor([40, 20, 47])
    lm.scores = HeadScores(HEADS)
    lm.decode_step(tokens, places, plain.gathered(own), MAX_LEN)
    scores, lm.scores = lm.scores, None
    FusedStep(lm, MAX_LEN)(tokens, places, kept.gathered(own), MAX_LEN, TILES)
    for place, rows in enumerate(found(kept, slots, places.tolist())):
        check(rows, seen(scores, place))


@pytest.mark.parametrize("opened_cache", [own_slots, shared_pages])
@torch.inference_mode()
def test_rows_behind_fused_prompts_are_what_plain_passes_look_at(lm, opened_cache):
    """Prompts are of different lengths, so that padding follows two of them."""
    slots, lengths = [3, 1, 0], [17, 9, 36]
    plain, kept = filled(opened_cache, 5)
    codes = torch.randint(CONFIG.text_vocab_size, (3, 40))
    given = codes, torch.tensor(lengths), torch.zeros(3, dtype=torch.int64)
    FusedPrefill(lm, MAX_LEN)(*given, kept.gathered(torch.tensor(slots)), None)
    rows = found(kept, slots, [length - 1 for length in lengths])
    for place, (slot, length) in enumerate(zip(slots, lengths, strict=True)):
        lm.scores = HeadScores(HEADS)
        lm.prefill(lm.embed_codes(codes[place, :length]), 0, plain.view(slot, slot + 1))
        scores, lm.scores = lm.scores, None
        expected = scores.shares(TEXTS[place])[0].mean(0)[-1]
        check(rows[place], expected)


@torch.inference_mode()
def test_an_utterance_in_kernels_gets_the_rows_of_its_tokens(lm, monkeypatch):
    """Beside another one, which asks for none."""
    monkeypatch.setattr(prefill_graphs, "PROMPT_SIZES", (16,))
    monkeypatch.setattr(prefill_graphs, "TEXT_SPANS", ())
    fused = FusedStep(lm, 32)
    passes = CapturedPasses(
        step=lambda *fed: fused(*fed, TILES), prefill=FusedPrefill(lm, 32), rows=text_rows
    )
    pool = CachePool(16, 4)
    decoder = BatchDecoder(lm, 2, 32, play_back, passes=passes, pool=pool, heads=HEADS)
    options = SamplingOptions(seed=3, min_tokens=6, max_tokens=6)
    prompt = Prompt([4, 2, 7, 9, 1], [5])
    decoder.add(Prompt([4, 2, 7]), options)
    followed = decoder.add(prompt, options)
    decoder.follow(followed, prompt.text_positions)
    while decoder.busy:
        decoder.step()
    lm.scores = HeadScores(HEADS, rows=6)
    speech = lm.speech_embedding(torch.tensor(followed.tokens[:-1]))
    view = KVCache(CONFIG, 1, 32).view(0, 1)
    lm.prefill(torch.cat([lm.embed(prompt.segments()), speech]), 0, view)
    scores, lm.scores = lm.scores, None
    expected = scores.shares(prompt.text_positions)[0].mean(0)
    torch.testing.assert_close(torch.from_numpy(followed.rows.take(6)), expected, rtol=0, atol=ROUNDING)


@torch.inference_mode()
def test_kept_queries_change_no_logits(lm):
    plain, kept = filled(shared_pages, 3)
    tokens, places = torch.tensor([7, 3, 5]), torch.tensor([40, 20, 47])
    step = FusedStep(lm, MAX_LEN)
    logits = [step(tokens, places, cache.view(0, 3), MAX_LEN, TILES).clone() for cache in (plain, kept)]
    assert torch.equal(*logits)
