"""The running batch of PyTorch's network, and the speech tokens of a single utterance."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

import torch

from cosyvoice_runtime.gpu.cuda_graphs import GraphCapture
from cosyvoice_runtime.lm.cache import CachePool
from cosyvoice_runtime.lm.generation import FinishReason, Progress, TokenLimits
from cosyvoice_runtime.lm.prompt import Prompt, num_positions
from cosyvoice_runtime.lm.running_batch import DEFAULT_OPTIONS, HostSteps, RunningBatch, Steps
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.torch.device_steps import PLAIN_PASSES, CapturedPasses, DeviceSteps
from cosyvoice_runtime.lm.torch.kv_cache import KVCache, PagedKVCache
from cosyvoice_runtime.lm.torch.network import NetworkHeads, SpeechLM
from cosyvoice_runtime.lm.torch.speech_decoder import CachedLM, SpeechDecoder


class BatchDecoder(RunningBatch):
    """Decodes up to ``slots`` utterances together, one token each per `step`.

    Args:
        lm: the network; cache and decoding take its device and dtype.
        slots: utterances at a time.
        max_len: positions per utterance, prompt and generated tokens together.
        capture: captures steps, and prompts of ids alone, to be replayed; on a GPU `CudaGraphCapture`. They
            come in few sizes, which changes logits as much as batching does. Draws are captured with them,
            from other random numbers than the host's, and a token is emitted by the step after its own.
        prefill_batch: most prompts fed in one pass; more than one pays where a pass costs the same for
            several, as on a GPU.
        passes: the computations that are captured.
        pool: pages that all utterances share; None: each has ``max_len`` positions of its own, which plain
            steps read without a copy.
        heads: layer and head of those that follow the text; none where no rows of attention are told.
    """

    def __init__(
        self,
        lm: SpeechDecoder,
        slots: int,
        max_len: int,
        capture: GraphCapture | None = None,
        prefill_batch: int = 1,
        passes: CapturedPasses = PLAIN_PASSES,
        pool: CachePool | None = None,
        heads: Sequence[tuple[int, int]] = (),
    ) -> None:
        cache = (
            KVCache(lm.config, slots, max_len, lm.device, lm.dtype)
            if pool is None
            else PagedKVCache(lm.config, slots, max_len, pool, lm.device, lm.dtype)
        )
        if lm.adapters:
            cache.serve_adapters()
        steps: Steps
        if capture is None:
            followed = NetworkHeads(lm, heads) if heads and isinstance(lm, SpeechLM) else None
            steps = HostSteps(CachedLM(lm, cache), cache, prefill_batch, lm.config.fill_id, followed)
        else:
            if heads and isinstance(lm, SpeechLM):
                cache.keep_queries(lm.config, heads)
            steps = DeviceSteps(lm, cache, prefill_batch, capture, passes)
        super().__init__(lm.config, cache, steps, prefill_batch, lm.adapters)

    @torch.inference_mode()
    def step(self) -> list[Progress]:
        return super().step()

    @torch.inference_mode()
    def step_some(self, first: Collection[Hashable]) -> list[Progress]:
        """Bring these utterances and new ones forward by a token, while the others wait; without captured
        steps whose rows are any slots it is :meth:`step`.

        A captured step of a few utterances is sooner done, and theirs are the same ids in either.
        """
        steps = self._steps
        if isinstance(steps, DeviceSteps) and steps.picks:
            return self._progress(steps.advance(self.active, first))
        return super().step()


def generate(
    lm: SpeechDecoder, prompt: Prompt, options: SamplingOptions = DEFAULT_OPTIONS
) -> tuple[list[int], FinishReason]:
    """The speech tokens of one utterance, and why they ended; an InvalidInput tells of an id outside its
    table."""
    most = TokenLimits.of(options, len(prompt.text)).max_tokens
    decoder = BatchDecoder(lm, slots=1, max_len=num_positions(prompt.segments()) + most)
    generation = decoder.add(prompt, options)
    while generation.finish_reason is None:
        decoder.step()
    if generation.error is not None:
        raise generation.error
    return generation.tokens, generation.finish_reason
