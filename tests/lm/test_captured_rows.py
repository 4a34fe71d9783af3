"""Captured steps compute rows of attention where they are asked for, and for no one else."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from lm_utterances import TEXT

from capture_fake import play_back
from cosyvoice_runtime.lm.cache import CachePool
from cosyvoice_runtime.lm.generation import Generation, Progress
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.text_segment import MOST_TEXT
from cosyvoice_runtime.lm.torch.captured_rows import WIDTHS, text_rows_plain
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


def run(decoder: BatchDecoder) -> list[Progress]:
    progress: list[Progress] = []
    while decoder.busy:
        progress += decoder.step()
    return progress


def rows_of(generation: Generation, progress: list[Progress]) -> torch.Tensor:
    """Rows of all tokens; none of the progress lacks them."""
    own = [each for each in progress if each.handle is generation]
    assert [len(each.rows) for each in own] == [len(each.tokens) for each in own]
    return torch.cat([torch.from_numpy(each.rows) for each in own])


@torch.inference_mode()
def test_steps_of_some_bring_the_rows_that_steps_of_all_do(lm):
    found = []
    for some in (True, False):
        decoder = ahead(lm, 4, 64, pool=POOL, prefill_batch=4)
        spoken = [begin(decoder, seed, 20, True, Prompt(TEXT[seed : seed + 9])) for seed in range(4)]
        progress = decoder.step() + decoder.step()
        for _ in range(6):
            progress += decoder.step_some([spoken[2]]) if some else decoder.step()
        progress += run(decoder)
        found.append([rows_of(generation, progress) for generation in spoken])
    for some, every in zip(*found, strict=True):
        assert len(some) == 20
        torch.testing.assert_close(some, every, rtol=0, atol=2**-10)


@torch.inference_mode()
def test_a_slot_that_was_followed_tells_nothing_of_the_next_utterance(lm):
    decoder = ahead(lm, 1, 64)
    first = begin(decoder, 0, 5, follow=True)
    assert rows_of(first, run(decoder)).shape == (5, 3)
    second = begin(decoder, 0, 5, follow=False)
    assert [each.rows for each in run(decoder)] == [None] * 5
    assert first.tokens == second.tokens


def counted(lm: SpeechLM) -> tuple[BatchDecoder, list[int]]:
    """A decoder, and how many rows are computed each time."""
    calls: list[int] = []

    def compute(kept, cache, asked, rows):
        calls.append(len(asked))
        text_rows_plain(kept, cache, asked, rows)

    return ahead(lm, 3, 64, prefill_batch=3, passes=CapturedPasses(rows=compute), pool=POOL), calls


@torch.inference_mode()
def test_rows_are_computed_only_behind_passes_of_which_some_are_asked_for(lm):
    decoder, calls = counted(lm)
    assert calls == [1] * len(WIDTHS)  # Kernels are loaded then.
    for follows, rows in ((None, []), (1, [1] * 8)):
        calls.clear()
        for seed in range(3):
            begin(decoder, seed, 8, follow=seed == follows)
        run(decoder)
        assert calls == rows


@torch.inference_mode()
def test_rows_have_room_for_the_longest_text(lm):
    widths = []

    def compute(kept, cache, asked, rows):
        widths.append(rows.shape[1])
        text_rows_plain(kept, cache, asked, rows)

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
    progress = run(decoder)
    if size == MOST_TEXT:
        torch.testing.assert_close(
            rows_of(generation, progress).sum(1), torch.ones(5), rtol=0, atol=MOST_TEXT * 2**-13
        )
    else:
        assert [each.rows for each in progress] == [None] * 5


@torch.inference_mode()
def test_an_utterance_that_was_spoken_in_part_has_no_rows(lm):
    """Its given tokens are fed together, so that no row of each is seen."""
    decoder = ahead(lm, 1, 64)
    generation = begin(decoder, 0, 8, True, Prompt([4, 2, 7], spoken=[3, 9, 1]))
    assert [each.rows for each in run(decoder)] == [None] * 5
    assert len(generation.tokens) == 8
