"""The running batch of PyTorch's network, and the speech tokens of a single utterance."""

from __future__ import annotations

from collections.abc import Generator

import torch

from cosyvoice_runtime.gpu.cuda_graphs import GraphCapture
from cosyvoice_runtime.lm.cache import CachePool
from cosyvoice_runtime.lm.generation import Emission, FinishReason, TokenLimits
from cosyvoice_runtime.lm.prompt import Prompt, num_positions
from cosyvoice_runtime.lm.running_batch import DEFAULT_OPTIONS, HostSteps, RunningBatch, Steps
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.torch.cached_lm import CachedLM
from cosyvoice_runtime.lm.torch.device_steps import DeviceSteps, StepDraws
from cosyvoice_runtime.lm.torch.kv_cache import KVCache, PagedKVCache
from cosyvoice_runtime.lm.torch.prefill_graphs import LogitsPrefill
from cosyvoice_runtime.lm.torch.slot_draws import DrawSlots, draw_plain
from cosyvoice_runtime.lm.torch.speech_decoder import SpeechDecoder
from cosyvoice_runtime.lm.torch.step_graphs import LogitsStep


class BatchDecoder(RunningBatch):
    """Decodes up to ``slots`` utterances together, one token each per `step`.

    Args:
        lm: the network; cache and decoding take its device and dtype.
        slots: utterances at a time.
        max_len: positions per utterance, prompt and generated tokens together.
        capture: steps, and prompts of ids alone, are captured with it and replayed, on a GPU with
            `CudaGraphCapture`. They come in few sizes, so this changes logits as much as neighbours do. Draws
            are captured with them, from other random numbers than the host's, and a token is emitted by the
            step after its own.
        prefill_batch: prompts fed in one pass at most. More than one is faster where a pass costs the same
            for one as for several, as on a GPU.
        captured_step: what is captured, before the draws; None captures the network's own step.
        draw: draws after captured passes over prompts.
        step_draw: draws in captured steps; None takes ``draw``.
        pool: pages that all utterances share; None: each has ``max_len`` positions of its own, which plain
            steps read without a copy.
        captured_prefill: what is captured of prompts, before the draws; None captures the network's own pass.
    """

    def __init__(
        self,
        lm: SpeechDecoder,
        slots: int,
        max_len: int,
        capture: GraphCapture | None = None,
        prefill_batch: int = 1,
        captured_step: LogitsStep | None = None,
        draw: DrawSlots = draw_plain,
        step_draw: DrawSlots | None = None,
        pool: CachePool | None = None,
        captured_prefill: LogitsPrefill | None = None,
    ) -> None:
        cache: KVCache
        if pool is None:
            cache = KVCache(lm.config, slots, max_len, lm.device, lm.dtype)
        else:
            cache = PagedKVCache(lm.config, slots, max_len, pool, lm.device, lm.dtype)
        steps: Steps
        if capture is None:
            steps = HostSteps(CachedLM(lm, cache), cache, prefill_batch, lm.config.fill_id)
        else:
            step = captured_step or lm.decode_step
            draws = StepDraws(draw, step_draw or draw)
            steps = DeviceSteps(lm, cache, prefill_batch, capture, step, draws, captured_prefill)
        super().__init__(lm.config, cache, steps)

    @torch.inference_mode()
    def step(self) -> list[Emission]:
        return super().step()


def generate(
    lm: SpeechDecoder, prompt: Prompt, options: SamplingOptions = DEFAULT_OPTIONS
) -> Generator[int, None, FinishReason]:
    """Yield the speech tokens of one utterance as they are drawn.

    The generator's return value is the finish reason (``reason = yield from generate(...)``).

    Raises:
        InvalidInput: the prompt holds an id outside its table.
        CosyVoiceError: decoding failed.
    """
    most = TokenLimits.of(options, len(prompt.text)).max_tokens
    decoder = BatchDecoder(lm, slots=1, max_len=num_positions(prompt.parts()) + most)
    generation = decoder.add(prompt, options)
    while generation.finish_reason is None:
        for _, token, _ in decoder.step():
            if token is not None:
                yield token
    if generation.error is not None:
        raise generation.error
    return generation.finish_reason


def generate_all(
    lm: SpeechDecoder, prompt: Prompt, options: SamplingOptions = DEFAULT_OPTIONS
) -> tuple[list[int], FinishReason]:
    """The speech tokens of one utterance and why they ended; raises as :func:`generate`."""
    tokens: list[int] = []
    drawn = generate(lm, prompt, options)
    while True:
        try:
            tokens.append(next(drawn))
        except StopIteration as end:
            return tokens, end.value
