"""Captured steps compute rows of attention where they are asked for, and for no one else."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from lm_utterances import TEXT

from capture_fake import play_back
from cosyvoice_runtime.lm.cache import CachePool
from cosyvoice_runtime.lm.generation import Generation
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.text_segment import MOST_TEXT
from cosyvoice_runtime.lm.torch.captured_rows import RING, WIDTHS, text_rows_plain
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder
from cosyvoice_runtime.lm.torch.device_steps import CapturedPasses
from cosyvoice_runtime.lm.torch.network import SpeechLM

HEADS = [(2, 5), (0, 1), (2, 0)]
PROMPT = Prompt([4, 2, 7])
POOL = CachePool(8, 48)

ahead = partial(BatchDecoder, capture=play_back, heads=HEADS)


def begin(decoder: BatchDecoder, seed: int, tokens: int, follow: bool, prompt: Prompt = PROMPT) -> Generation:
    options = SamplingOptions(seed=seed, min_tokens=tokens, max_tokens=tokens)
    generation = decoder.add(prompt, options)
    if follow:
        decoder.follow(generation, prompt.text_positions)
    return generation


def run(decoder: BatchDecoder) -> None:
    while decoder.busy:
        decoder.step()


def rows_of(generation: Generation) -> torch.Tensor:
    """Rows of all tokens of an utterance that has ended."""
    assert generation.rows is not None
    return torch.from_numpy(generation.rows.take(len(generation.tokens)))


@torch.inference_mode()
def test_steps_of_some_bring_the_rows_that_steps_of_all_do(lm):
    found = []
    for some in (True, False):
        decoder = ahead(lm, 4, 64, pool=POOL, prefill_batch=4)
        spoken = [begin(decoder, seed, 20, True, Prompt(TEXT[seed : seed + 9])) for seed in range(4)]
        decoder.step(), decoder.step()
        for _ in range(6):
            if some:
                decoder.step_some([spoken[2]])
            else:
                decoder.step()
        run(decoder)
        found.append([rows_of(generation) for generation in spoken])
    for some, every in zip(*found, strict=True):
        assert len(some) == 20
        torch.testing.assert_close(some, every, rtol=0, atol=2**-10)


@torch.inference_mode()
def test_a_slot_that_was_followed_tells_nothing_of_the_next_utterance(lm):
    decoder = ahead(lm, 1, 64)
    first = begin(decoder, 0, 5, follow=True)
    run(decoder)
    second = begin(decoder, 0, 5, follow=False)
    run(decoder)
    assert rows_of(first).shape == (5, 3)
    assert second.rows is None
    assert first.tokens == second.tokens


@torch.inference_mode()
def test_more_rows_are_kept_than_memory_has_room_for(lm):
    """Rows that nobody takes before the end stay, also those of a shorter utterance beside them."""
    decoder, count = ahead(lm, 2, 512), 3 * RING + 7
    spoken = [begin(decoder, 1, length, True) for length in (count, 9)]
    run(decoder)
    late = [rows_of(generation) for generation in spoken]
    for generation, rows in zip(spoken, late, strict=True):
        again = begin(decoder, 1, len(generation.tokens), True)
        found = []
        while decoder.busy:
            for progress in decoder.step():
                found.append(again.rows.take(len(progress.tokens)))
        assert again.tokens == generation.tokens
        torch.testing.assert_close(rows, torch.from_numpy(np.concatenate(found)), rtol=0, atol=2**-10)


def counted(lm: SpeechLM) -> tuple[BatchDecoder, list[int]]:
    """A decoder, and how many rows are computed each time."""
    calls: list[int] = []

    def compute(kept, cache, fed, texts, rows, width):
        asks = texts[:, 0] < texts[:, 1]
        calls.append(int(asks[fed[1]].sum()))
        text_rows_plain(kept, cache, fed, texts, rows, width)

    return ahead(lm, 3, 64, prefill_batch=3, passes=CapturedPasses(rows=compute), pool=POOL), calls


@torch.inference_mode()
def test_rows_are_computed_only_behind_passes_of_which_some_are_asked_for(lm):
    decoder, calls = counted(lm)
    assert calls == [0] * len(WIDTHS)  # Kernels are loaded then.
    for follows, rows in ((None, []), (1, [1] * 8)):
        calls.clear()
        for seed in range(3):
            begin(decoder, seed, 8, follow=seed == follows)
        run(decoder)
        assert calls == rows


@torch.inference_mode()
def test_rows_have_room_for_the_longest_text(lm):
    widths = []

    def compute(kept, cache, fed, texts, rows, width):
        widths.append(width)
        text_rows_plain(kept, cache, fed, texts, rows, width)

    decoder = ahead(lm, 2, 512, passes=CapturedPasses(rows=compute))
    widths.clear()
    for seed, size in enumerate((64, 65)):
        begin(decoder, seed, 4, True, Prompt([1 + number % 80 for number in range(size)]))
        run(decoder)
    assert widths == [64] * (len(widths) // 2) + [128] * (len(widths) // 2)


@pytest.mark.parametrize("size", [MOST_TEXT, MOST_TEXT + 1])
@torch.inference_mode()
def test_texts_up_to_the_longest_have_rows(lm, size):
    decoder = ahead(lm, 1, 512)
    generation = begin(decoder, 0, 5, True, Prompt([1 + number % 80 for number in range(size)]))
    run(decoder)
    if size == MOST_TEXT:
        torch.testing.assert_close(rows_of(generation).sum(1), torch.ones(5), rtol=0, atol=MOST_TEXT * 2**-13)
    else:
        assert generation.rows is None
