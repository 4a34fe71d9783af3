"""The network over a cache: parts, batches and precisions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM

lengths = st.lists(st.integers(1, 30), min_size=1, max_size=6)


def random_embeddings(lm: SpeechLM, length: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(length, lm.config.hidden_size, generator=generator)


@given(lengths, st.integers(0, 99))
@settings(max_examples=25)
def test_batch_row_equals_single_run(lm: SpeechLM, lengths: list[int], seed: int) -> None:
    batch = KVCache(lm.config, len(lengths), 40)
    tokens = torch.arange(len(lengths)) + seed % 60
    expected = []
    for row, length in enumerate(lengths):
        prompt = random_embeddings(lm, length, seed + row)
        alone = KVCache(lm.config, 1, length + 1).view(0, 1)
        lm.prefill(prompt, 0, alone)
        lm.prefill(prompt, 0, batch.view(row, row + 1))
        expected.append(lm.decode_step(tokens[row : row + 1], torch.tensor([length]), alone, length + 1)[0])
    logits = lm.decode_step(tokens, torch.tensor(lengths), batch.view(0, len(lengths)), 40)
    torch.testing.assert_close(logits, torch.stack(expected), rtol=0, atol=1e-4)


@given(lengths, st.integers(0, 9))
@settings(max_examples=25)
def test_rows_prefilled_together_equal_single_ones(lm: SpeechLM, lengths: list[int], start: int) -> None:
    together, single = (KVCache(lm.config, len(lengths) + 1, 40) for _ in range(2))
    slots = [*range(1, len(lengths)), 0]
    starts = [start if row % 2 else 0 for row in range(len(lengths))]
    rows = [random_embeddings(lm, length, seed=row) for row, length in enumerate(lengths)]
    for cache in (together, single):
        for slot in slots:
            lm.prefill(random_embeddings(lm, 9, seed=slot), 0, cache.view(slot, slot + 1))
    logits = lm.prefill_batch(rows, starts, together.gathered(torch.tensor(slots)))
    expected = [
        lm.prefill(row, begin, single.view(slot, slot + 1))
        for row, begin, slot in zip(rows, starts, slots, strict=True)
    ]
    torch.testing.assert_close(logits, torch.stack(expected), rtol=0, atol=1e-4)
    torch.testing.assert_close(together.data, single.data, rtol=1e-5, atol=1e-4)


@given(st.integers(1, 20), st.integers(1, 20))
@settings(max_examples=15)
def test_prefill_in_parts_equals_one_prefill(lm: SpeechLM, first: int, second: int) -> None:
    prompt = random_embeddings(lm, first + second, seed=first)
    whole, parts = (KVCache(lm.config, 1, 40).view(0, 1) for _ in range(2))
    lm.prefill(prompt[:first], 0, parts)
    in_parts = lm.prefill(prompt[first:], first, parts)
    torch.testing.assert_close(in_parts, lm.prefill(prompt, 0, whole), rtol=0, atol=1e-4)
    torch.testing.assert_close(parts.data, whole.data, rtol=1e-5, atol=1e-4)


def test_token_fed_by_step_equals_token_in_prompt(lm: SpeechLM, config: SpeechLMConfig) -> None:
    prompt = Prompt([3, 1, 4], prompt_speech=[9, 2, 6])
    whole = lm.prefill(lm.embed(prompt.segments()), 0, KVCache(config, 1, 9).view(0, 1))
    view = KVCache(config, 1, 9).view(0, 1)
    lm.prefill(lm.embed(Prompt([3, 1, 4], prompt_speech=[9, 2]).segments()), 0, view)
    stepped = lm.decode_step(torch.tensor([6]), torch.tensor([7]), view, 9)[0]
    torch.testing.assert_close(stepped, whole, rtol=0, atol=1e-4)


def test_idle_row_leaves_what_is_attended_to(lm: SpeechLM, config: SpeechLMConfig) -> None:
    """A slot that waits takes part with any token at its next position."""
    prompt, rest = random_embeddings(lm, 5, 1), random_embeddings(lm, 3, 2)
    disturbed, quiet = (KVCache(config, 2, 16) for _ in range(2))
    for cache in (disturbed, quiet):
        lm.prefill(prompt, 0, cache.view(1, 2))
    lm.decode_step(torch.tensor([8, 0]), torch.tensor([0, 5]), disturbed.view(0, 2), 16)
    results = [lm.prefill(rest, 5, cache.view(1, 2)) for cache in (disturbed, quiet)]
    assert torch.equal(*results)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_slot_in_a_step_of_one_size_does_not_change_in_the_last_bit(
    config: SpeechLMConfig, published: dict[str, torch.Tensor], dtype: torch.dtype
) -> None:
    """Whatever the other slots hold and feed."""
    model = SpeechLM.from_tensors(config, published, dtype=dtype)
    prompt, results = random_embeddings(model, 9, seed=0).to(dtype), []
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        cache = KVCache(config, 5, 64, dtype=dtype)
        cache.data.normal_(generator=generator)
        model.prefill(prompt, 0, cache.view(2, 3))
        tokens, positions = (torch.randint(0, high, (5,), generator=generator) for high in (70, 64))
        tokens[2], positions[2] = 3, 9
        results.append(model.decode_step(tokens, positions, cache.view(0, 5), 64)[2])
    assert all(torch.equal(result, results[0]) for result in results)


def test_decode_step_reads_nothing_back_to_the_host(config: SpeechLMConfig) -> None:
    """It runs on tensors without values, so it can be captured in a CUDA graph."""
    with torch.device("meta"):
        model = SpeechLM(config)
        tokens, positions = torch.zeros(2, 3, dtype=torch.int64)
    view = KVCache(config, 3, 16, device="meta").view(0, 3)
    logits = model.decode_step(tokens, positions, view, 16)
    assert logits.shape == (3, config.speech_rows)


def test_prompt_layout_is_sos_text_task_speech(lm: SpeechLM) -> None:
    control, text, speech = (
        table.weight for table in (lm.control_embedding, lm.text_embedding, lm.speech_embedding)
    )
    expected = torch.cat([control[:1], text[[7, 8]], control[1:], speech[[5]]])
    assert torch.equal(lm.embed(Prompt([8], [7], [5]).segments()), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_close(
    config: SpeechLMConfig, published: dict[str, torch.Tensor], lm: SpeechLM, dtype: torch.dtype
) -> None:
    half = SpeechLM.from_tensors(config, published, dtype=dtype)
    parts = Prompt([3, 1, 4], prompt_speech=[9, 2, 6]).segments()
    logits = []
    for model in (half, lm):
        view = KVCache(config, 1, 12, dtype=model.dtype).view(0, 1)
        model.prefill(model.embed(parts), 0, view)
        logits.append(model.decode_step(torch.tensor([6]), torch.tensor([8]), view, 12)[0])
    assert logits[0].dtype is torch.float32
    assert torch.nn.functional.cosine_similarity(*logits, dim=0) > 0.99
