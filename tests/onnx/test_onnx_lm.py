"""The speech LM on ONNX Runtime against PyTorch's network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from cosyvoice_runtime.checkpoint import Layout, load_config, load_tensors
from cosyvoice_runtime.checkpoint.as_torch import all_as_torch
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.tensors import TEXT_TABLE
from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.lm import FinishReason, Generation, Prompt, RunningBatch, SamplingOptions
from cosyvoice_runtime.lm.generation import TokenLimits
from cosyvoice_runtime.lm.onnx import export as lm_export
from cosyvoice_runtime.lm.onnx.export import BLOCK, MIDDLE, FloatArrays, quantised, write_lm
from cosyvoice_runtime.lm.onnx.files import BLOCKS, ROWS, LmFiles
from cosyvoice_runtime.lm.onnx.speech_lm import OnnxCachedLM, OnnxKVCache, OnnxSpeechLM, open_batch
from cosyvoice_runtime.lm.prefills import Prefill
from cosyvoice_runtime.lm.prompt import TASK, PromptSegment, Table
from cosyvoice_runtime.lm.running_batch import CachedNetwork, HostSteps
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder, generate
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM
from cosyvoice_runtime.lm.torch.speech_decoder import CachedLM

MAX_LEN = 64
SLOTS = 5
PROMPTS = (
    Prompt([3]),
    Prompt([5, 6, 7], prompt_text=[89, 0], prompt_speech=[0, 69, 41, 41]),
    Prompt(list(range(30)), lead_text=[8, 9], prompt_speech=range(20)),
    Prompt([1, 1]),
)
FEWER = (2, 0, 3)
"""Slots that are fed, others being idle."""
INT8_ERROR = {"random": {BLOCKS: 0.1, ROWS: 0.1}, "trained": {BLOCKS: 0.02, ROWS: 0.03}}
"""Of a network's logits, root mean square in parts of theirs."""
DEMO_VOICE = Path(__file__).parents[2] / "demo_voice"


def prefill(config: SpeechLMConfig, slot: int, parts: Sequence[PromptSegment], start: int = 0) -> Prefill:
    sequence = Generation(config, SamplingOptions(), (), TokenLimits(0, 1))
    sequence.slot = slot
    return Prefill(sequence, parts, start)


Error = Callable[[torch.Tensor, np.ndarray], float]


class Pair:
    """The same passes by both networks, each over a cache of its own; each gives the error of its logits."""

    def __init__(self, lm: SpeechLM, onnx_lm: OnnxSpeechLM, error: Error | None = None) -> None:
        self._error = error or largest
        self.config = lm.config
        self.caches = KVCache(lm.config, SLOTS, MAX_LEN), OnnxKVCache(lm.config, SLOTS, MAX_LEN)
        self.networks: tuple[CachedNetwork, CachedNetwork] = (
            CachedLM(lm, self.caches[0]),
            OnnxCachedLM(onnx_lm, self.caches[1]),
        )

    def prefill(self, slot: int, parts: Sequence[PromptSegment]) -> float:
        start = int(self.caches[0].lengths[slot])
        return self._error(
            *(each.prefill([prefill(self.config, slot, parts, start)]) for each in self.networks)
        )

    def decode(self, slots: Sequence[int], tokens: Sequence[int]) -> float:
        return self._error(*(each.decode(slots, tokens) for each in self.networks))


def largest(wanted: torch.Tensor, found: np.ndarray) -> float:
    """Difference, in parts of the largest wanted."""
    assert tuple(wanted.shape) == found.shape
    return float((torch.from_numpy(found) - wanted).abs().max() / wanted.abs().max())


def root_mean_square(wanted: torch.Tensor, found: np.ndarray) -> float:
    return float((torch.from_numpy(found) - wanted).norm() / wanted.norm())


def speak_through(pair: Pair) -> list[float]:
    """Errors of prompts of unequal lengths, of steps of all of them, and of some with others idle."""
    errors = [pair.prefill(slot, prompt.segments()) for slot, prompt in enumerate(PROMPTS)]
    for step in range(4):
        errors.append(pair.decode(range(len(PROMPTS)), [step, 69, 7, 30 + step]))
    for step in range(4):
        errors.append(pair.decode(sorted(FEWER), [step, 5, 60]))
    return errors


@torch.inference_mode()
def test_logits_equal_torch(lm, onnx_lm):
    assert max(speak_through(Pair(lm, onnx_lm))) < 1e-5


@torch.inference_mode()
def test_text_between_speech_equals_torch(lm, onnx_lm):
    """Parts that follow what is in the cache already, some of them empty."""
    pair = Pair(lm, onnx_lm)
    pair.prefill(1, PROMPTS[1].segments())
    pair.decode([1], [4])
    empty = PromptSegment(Table.TEXT, [])
    assert pair.prefill(1, [empty, PromptSegment(Table.TEXT, [7, 8, 9]), TASK]) < 1e-5
    assert pair.decode([1], [5]) < 1e-5
    assert list(pair.caches[0].lengths) == list(pair.caches[1].lengths)


@torch.inference_mode()
def test_slot_is_used_to_its_end(lm, onnx_lm):
    pair = Pair(lm, onnx_lm)
    pair.prefill(0, [PromptSegment(Table.SPEECH, list(range(60)))])
    pair.prefill(1, PROMPTS[0].segments())
    assert max(pair.decode([0, 1], [step, step]) for step in range(4)) < 1e-5
    assert pair.caches[1].lengths[0] == MAX_LEN
    assert pair.decode([1], [9]) < 1e-5  # beside one that has no next position


@pytest.mark.parametrize("weight_format", INT8_ERROR["random"])
@torch.inference_mode()
def test_weights_in_8_bits_stay_within_the_bound(lm, open_onnx, weight_format):
    errors = speak_through(Pair(lm, open_onnx(weight_format), root_mean_square))
    assert 1e-5 < max(errors) < INT8_ERROR["random"][weight_format]


@pytest.mark.parametrize("weight_format", INT8_ERROR["random"])
@torch.inference_mode()
def test_prompts_are_in_float32_where_a_second_copy_is_small(lm, open_onnx, monkeypatch, weight_format):
    pair = Pair(lm, open_onnx(weight_format))
    assert pair.prefill(0, PROMPTS[2].segments()) < 1e-5
    monkeypatch.setattr(lm_export, "PROMPT_BYTES", 0)
    large = open_onnx(weight_format)
    assert large.prompt_session is large.session
    error = Pair(lm, large, root_mean_square).prefill(0, PROMPTS[2].segments())
    assert 1e-5 < error < INT8_ERROR["random"][weight_format]


@torch.inference_mode()
def test_neighbours_change_no_logit_of_rows_in_8_bits(open_onnx, monkeypatch):
    """The scale of what a row meets is each position's own."""
    monkeypatch.setattr(lm_export, "PROMPT_BYTES", 0)
    onnx_lm = open_onnx(ROWS)
    cache = OnnxKVCache(onnx_lm.config, SLOTS, MAX_LEN)
    network, logits = OnnxCachedLM(onnx_lm, cache), []
    for slots in ([0], [0, 1, 2]):
        for slot in slots:
            cache.lengths[slot] = 0
            network.prefill([prefill(onnx_lm.config, slot, PROMPTS[slot].segments())])
        logits.append(network.decode(slots, [7] * len(slots))[0])
    np.testing.assert_allclose(*logits, rtol=0, atol=1e-5 * np.abs(logits[0]).max())


@pytest.mark.parametrize("weight_format", INT8_ERROR["trained"])
@torch.inference_mode()
def test_weights_of_the_demo_voice_in_8_bits_stay_within_its_bound(tmp_path, weight_format):
    model = load_config(DEMO_VOICE)
    config, tensors = model.speech_lm, load_tensors(Layout(DEMO_VOICE), "llm", model)
    lm, files = SpeechLM.from_tensors(config, all_as_torch(tensors)), LmFiles(tmp_path)
    write_lm(config, FloatArrays(tensors), files, weight_format)
    prompt = Prompt(list(range(300, 320)))
    spoken, _ = generate(lm, prompt, SamplingOptions(seed=2, min_tokens=40, max_tokens=40))
    pair = Pair(lm, OnnxSpeechLM(config, files, threads=1), root_mean_square)
    errors = [pair.prefill(0, prompt.segments()), *(pair.decode([0], [token]) for token in spoken)]
    assert max(errors) < INT8_ERROR["trained"][weight_format]


@pytest.mark.parametrize("columns", [1, BLOCK, 3 * BLOCK + 5])
def test_quantised_weights_are_within_half_a_step(columns):
    weight = np.random.default_rng(3).standard_normal((4, columns)).astype(np.float32)
    weight[0] = 0
    values, scales = quantised(weight)
    restored = ((values.astype(np.float32) - MIDDLE) * scales[:, :, None]).reshape(4, -1)
    assert np.all(restored[:, columns:] == 0)
    steps = np.repeat(scales, BLOCK, axis=1)[:, :columns]
    assert np.all(np.abs(restored[:, :columns] - weight) <= steps * 0.5001)
    assert values.min() >= 1


def batch_of(onnx_lm: OnnxSpeechLM, slots: int = SLOTS) -> RunningBatch:
    config = onnx_lm.config
    cache = OnnxKVCache(config, slots, MAX_LEN)
    return RunningBatch(config, cache, HostSteps(OnnxCachedLM(onnx_lm, cache), cache, 1, config.fill_id))


def test_a_voice_with_an_adapter_is_refused_with_what_serves_it(onnx_lm: OnnxSpeechLM) -> None:
    with pytest.raises(InvalidInput, match=r"adapter: 'warm' .* runtime torch serve adapters by voice"):
        open_batch(onnx_lm, 1, MAX_LEN).add(Prompt((1, 2), adapter="warm"))


def finish(batch: RunningBatch, generations: Sequence[Generation]) -> list[list[int]]:
    while any(each.finish_reason is None for each in generations):
        batch.step()
    return [each.tokens for each in generations]


def options_of(index: int) -> SamplingOptions:
    strategy = ("ras", "nucleus", "greedy")[index % 3]
    return SamplingOptions(strategy, seed=index, min_tokens=3 + index, max_tokens=6 + 2 * index)


def test_seeds_draw_the_tokens_of_torch(lm, onnx_lm):
    batches = batch_of(onnx_lm), BatchDecoder(lm, SLOTS, MAX_LEN)
    generations = [
        [batch.add(prompt, options_of(index)) for index, prompt in enumerate(PROMPTS)] for batch in batches
    ]
    found, wanted = (finish(*each) for each in zip(batches, generations, strict=True))
    assert found == wanted


def test_neighbours_that_come_and_go_change_no_token(onnx_lm):
    batch = batch_of(onnx_lm)
    together = [batch.add(prompt, options_of(index)) for index, prompt in enumerate(PROMPTS[:2])]
    batch.step()
    passer_by = batch.add(Prompt([4]), SamplingOptions(seed=9, min_tokens=3, max_tokens=3))
    batch.step()
    together.append(batch.add(PROMPTS[2], options_of(2)))
    batch.cancel(together[0])
    finish(batch, [*together, passer_by])
    alone = batch_of(onnx_lm, 1)
    for index in (1, 2):
        [tokens] = finish(alone, [alone.add(PROMPTS[index], options_of(index))])
        assert together[index].tokens == tokens


def test_cancelled_utterance_frees_its_slot_at_once(onnx_lm):
    batch = batch_of(onnx_lm, 1)
    first = batch.add(Prompt([3]), SamplingOptions(seed=1, min_tokens=9))
    batch.step()
    batch.cancel(first)
    assert (first.finish_reason, batch.free_slots) == (FinishReason.CANCELLED, 1)
    second = batch.add(Prompt([3]), SamplingOptions(seed=1, min_tokens=9, max_tokens=9))
    assert len(finish(batch, [second])[0]) == 9


def test_text_in_pieces_is_spoken_as_by_torch(lm, onnx_lm):
    if not lm.config.interleaves_text:
        pytest.skip("takes whole texts")
    spoken = []
    for batch in (batch_of(onnx_lm), BatchDecoder(lm, SLOTS, MAX_LEN)):
        neighbour = batch.add(Prompt([1, 2]), SamplingOptions(seed=8, min_tokens=20, max_tokens=20))
        stream = batch.add_open(Prompt((), [7, 8], [1, 2, 3]), SamplingOptions(seed=4, ceiling=30))
        for ids in ([1, 2, 3, 4], [5, 6, 7, 8, 9], [10]):
            batch.push_text(stream, ids)
            while not stream.waiting and stream.finish_reason is None:
                batch.step()
        batch.end_text(stream)
        spoken.append(finish(batch, [stream, neighbour]))
    assert spoken[0] == spoken[1]
    assert spoken[0][0]


def test_logits_that_are_not_finite_end_one_utterance_and_leave_nothing_behind(open_onnx, published, onnx_lm):
    table = published[TEXT_TABLE].clone()
    table[66] = float("nan")
    batch = batch_of(open_onnx(**{TEXT_TABLE: table}), 2)
    options = SamplingOptions(seed=1, min_tokens=5, max_tokens=5)
    broken, well = batch.add(Prompt([66]), options), batch.add(Prompt([4]), options)
    finish(batch, [broken, well])
    assert broken.finish_reason is FinishReason.ERROR
    assert isinstance(broken.error, CosyVoiceError)
    sound = batch_of(onnx_lm)
    expected = finish(sound, [sound.add(Prompt([4]), options)])
    assert [well.tokens] == expected
    assert finish(batch, [batch.add(Prompt([4]), options)]) == expected  # in the slot that was broken
