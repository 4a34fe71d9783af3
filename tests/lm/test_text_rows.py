"""Rows of what speech tokens look at in their text, for utterances of one batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from lm_utterances import TEXT

from capture_fake import play_back
from cosyvoice_runtime.lm.cache import CachePool
from cosyvoice_runtime.lm.generation import Generation
from cosyvoice_runtime.lm.prompt import Prompt, PromptSegment, Table
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder
from cosyvoice_runtime.lm.torch.head_scores import HeadScores
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM

HEADS = [(2, 5), (0, 1)]
LONG = 96
PROMPTS = [
    Prompt(TEXT[:8], [5], range(9)),
    Prompt(TEXT[3:5]),
    Prompt(TEXT[:30], lead_text=[1, 2, 3]),
    Prompt([4], [3, 3]),
]
OPTIONS = SamplingOptions(seed=4, min_tokens=30, max_tokens=40, runaway_span=0)
ROUNDING = 2**-11
"""Of captured steps' rows, which are float16 on their way."""
Rows = dict[Generation, list[np.ndarray]]


@torch.inference_mode()
def expected(lm: SpeechLM, prompt: Prompt, tokens: Sequence[int]) -> np.ndarray:
    """Rows of one pass over prompt and tokens."""
    given = PromptSegment(Table.SPEECH, list(tokens[:-1]))
    fed = lm.embed([each for each in (*prompt.segments(), given) if len(each.ids)])
    scores = lm.scores = HeadScores(HEADS, rows=len(tokens))
    lm.prefill(fed, 0, KVCache(lm.config, 1, len(fed)).view(0, 1))
    lm.scores = None
    [shares] = scores.shares(prompt.text_positions)
    return shares.mean(0).numpy()


def spoken(decoder: BatchDecoder, prompts: Sequence[Prompt], followed: Sequence[int]) -> Rows:
    """Utterances that begin one step after the other, and the rows of their tokens as they come."""
    found: Rows = {}
    for number, prompt in enumerate(prompts):
        generation = decoder.add(prompt, OPTIONS)
        found[generation] = []
        if number in followed:
            decoder.follow(generation, prompt.text_positions)
        take(decoder, found)
    while decoder.active:
        take(decoder, found)
    return found


def take(decoder: BatchDecoder, found: Rows) -> None:
    for progress in decoder.step():
        if progress.handle.rows is not None:
            rows = progress.handle.rows.take(len(progress.tokens))
            assert len(rows) == len(progress.tokens)
            found[progress.handle].append(rows)


@pytest.mark.parametrize("capture", [None, play_back], ids=["eager", "captured"])
@pytest.mark.parametrize("pool", [None, CachePool(8, 13)], ids=["slots", "few pages"])
def test_rows_of_a_batch_are_those_of_each_utterance(lm, pool, capture):
    """Also of one that has lost its pages and is fed again."""
    decoder = BatchDecoder(lm, 4, LONG, capture, prefill_batch=2, pool=pool, heads=HEADS)
    error = 1e-5 if capture is None else ROUNDING
    found = spoken(decoder, PROMPTS, followed=[0, 1, 2])
    for prompt, (generation, rows) in zip(PROMPTS, found.items(), strict=True):
        if prompt is PROMPTS[3]:
            assert rows == []
            continue
        assert len(generation.tokens) == sum(map(len, rows))
        alone = expected(lm, prompt, generation.tokens)
        assert alone.max() > 1.5 / len(prompt.text)  # A row of other heads would not do.
        np.testing.assert_allclose(np.concatenate(rows), alone, rtol=0, atol=error)
    assert lm.scores is None
    assert (decoder.cache_use.evictions > 0) == (pool is not None)


@pytest.mark.parametrize("capture", [None, play_back], ids=["eager", "captured"])
def test_rows_are_taken_late_and_in_any_number(lm, capture):
    """Also those of an utterance that has ended, whose slot another one has taken."""
    decoder = BatchDecoder(lm, 1, LONG, capture, heads=HEADS)
    taken = []
    for prompt in PROMPTS[:2]:
        generation = decoder.add(prompt, OPTIONS)
        rows = decoder.follow(generation, prompt.text_positions)
        while decoder.active:
            decoder.step()
        taken.append((prompt, generation, rows))
    for prompt, generation, rows in taken:
        counts = 0, 7, len(generation.tokens) - 7, 0
        found = np.concatenate([rows.take(count) for count in counts])
        np.testing.assert_allclose(found, expected(lm, prompt, generation.tokens), rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("capture", [None, play_back], ids=["eager", "captured"])
def test_an_utterance_that_was_spoken_in_part_has_no_rows(lm, capture):
    decoder = BatchDecoder(lm, 1, LONG, capture, heads=HEADS)
    again = decoder.add(dataclasses.replace(PROMPTS[0], spoken=[3, 9, 1]), OPTIONS)
    assert decoder.follow(again, PROMPTS[0].text_positions) is None
    while decoder.active:
        decoder.step()
    assert len(again.tokens) >= 30


@pytest.mark.parametrize("capture", [None, play_back], ids=["eager", "captured"])
def test_without_heads_there_are_no_rows(lm, capture):
    found = spoken(BatchDecoder(lm, 4, LONG, capture), PROMPTS, followed=range(4))
    assert all(rows == [] for rows in found.values())
    assert all(generation.tokens for generation in found)


@torch.inference_mode()
def test_a_slot_that_fills_up_a_step_keeps_its_rows(lm):
    """A sequence with a full cache waits for its last id while another goes on."""
    decoder = BatchDecoder(lm, 2, LONG, play_back, heads=HEADS)
    prompt, others = PROMPTS[0], Prompt([1, 2])
    count = LONG - len(prompt.prompt_text) - len(prompt.prompt_speech) - len(prompt.text) - 1
    full = SamplingOptions(seed=1, min_tokens=count, max_tokens=count, runaway_span=0)
    first = decoder.add(prompt, full)
    rows = decoder.follow(first, prompt.text_positions)
    for _ in range(5):
        decoder.step()
    decoder.add(others, SamplingOptions(seed=2, min_tokens=LONG - 9, max_tokens=LONG - 9, runaway_span=0))
    while decoder.active:
        decoder.step()
    assert len(first.tokens) == count
    found = rows.take(count)
    np.testing.assert_allclose(found, expected(lm, prompt, first.tokens), rtol=0, atol=ROUNDING)


@torch.inference_mode()
def test_a_slot_that_has_lost_its_pages_keeps_its_rows(lm):
    """It is the shortest, which fill up steps, while the row of a later position has its place in memory."""
    options = SamplingOptions(seed=5, min_tokens=180, max_tokens=180, runaway_span=0)
    decoder = BatchDecoder(lm, 6, 320, play_back, prefill_batch=4, pool=CachePool(16, 38), heads=HEADS)
    spoken = []
    for size in (9, 21, 33, 14):
        prompt = Prompt([1 + (7 * number + size) % 80 for number in range(size)])
        generation = decoder.add(prompt, options)
        spoken.append((prompt, generation, decoder.follow(generation, prompt.text_positions)))
    while decoder.active:
        decoder.step()
    assert decoder.cache_use.evictions > 0
    for prompt, generation, rows in spoken:
        np.testing.assert_allclose(
            rows.take(180), expected(lm, prompt, generation.tokens), rtol=0, atol=ROUNDING
        )
