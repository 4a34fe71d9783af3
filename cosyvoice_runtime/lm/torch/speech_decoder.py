"""The base of the speech LMs of all families: a decoder over a cache, and draws from its logits.

Candidates are selected where the logits are; then scores and candidates come to the host in one transfer.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.schema import llm_schema
from cosyvoice_runtime.checkpoint.tensors import TEXT_HEAD, schema_problems
from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.families import load, speech_lm_parts
from cosyvoice_runtime.gpu.transfer import integers, moved
from cosyvoice_runtime.lm.prefills import Prefill
from cosyvoice_runtime.lm.prompt import PromptSegment
from cosyvoice_runtime.lm.running_batch import fed_slots
from cosyvoice_runtime.lm.sampling import Blocked, Choices, SamplerState, depth_of, draw, seen_ids
from cosyvoice_runtime.lm.torch.kv_cache import CacheView, KVCache

if TYPE_CHECKING:
    from typing import Self


class SpeechDecoder(nn.Module):
    """Decoder over a cache.

    Called with embeddings ``[B, T, input width]`` of new positions int64 ``[B, T]``, which may differ from
    sequence to sequence, a view of B slots that holds all positions before them, and the span: so many
    positions of the cache are read, of which later ones than a query's own are masked. Keys and values are
    written to the cache. The result is ``[B, T, hidden]`` after the final norm.

    Attributes:
        speech_embedding: table of the ids that are fed.
        head: projection to the rows that are drawn from.
        adapters: names of the adapters that sequences may have, which its layers hold.
    """

    config: SpeechLMConfig
    adapters: Sequence[str] = ()
    speech_embedding: nn.Embedding
    head: nn.Linear

    def __init__(self, config: SpeechLMConfig) -> None:
        super().__init__()
        self.config = config

    @classmethod
    def from_tensors(
        cls,
        config: SpeechLMConfig,
        tensors: Mapping[str, Tensor],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> Self:
        """Network with the weights of ``llm.pt``, given under their published names.

        Raises:
            CheckpointError: a tensor is missing, unknown or has another shape.
        """
        check_tensors(config, tensors)
        with torch.device("meta"):
            model = cls(config)
        state = cls.own_tensors(config, tensors, lambda tensor: tensor.to(device, dtype))
        model.load_state_dict(state, assign=True)
        if model.device.type == "cpu":
            store_by_columns(model)
        return model.eval().requires_grad_(False)

    @staticmethod
    @abstractmethod
    def own_tensors(
        config: SpeechLMConfig, tensors: Mapping[str, Tensor], convert: Callable[[Tensor], Tensor]
    ) -> Mapping[str, Tensor]:
        """State from published tensors; ``convert`` takes a tensor to the network's device and dtype."""

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.head.weight.dtype

    @abstractmethod
    def embed(self, segments: Sequence[PromptSegment]) -> Tensor:
        """Embeddings [T, input width] of segments, in order."""

    def prepare(self, max_len: int) -> None:
        """Compute what passes share over sequences of up to ``max_len`` positions, before any is captured."""

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 logits [..., speech_rows] of hidden states [..., hidden]."""
        return self.head(hidden).float()

    def prefill(self, embeddings: Tensor, start: int, cache: CacheView) -> Tensor:
        """Logits float32 [speech_rows] after embeddings [T, input width], fed to ``cache``'s one slot from
        ``start`` on."""
        positions = torch.arange(start, start + len(embeddings), device=embeddings.device)
        hidden = self(embeddings[None], positions[None], cache, start + len(embeddings))
        return self.logits(hidden[0, -1])

    def prefill_batch(self, prompts: Sequence[Tensor], starts: Sequence[int], cache: CacheView) -> Tensor:
        """`prefill` of several slots in one pass.

        Shorter prompts repeat their last position up to the length of the longest, which writes what is
        there already.

        Args:
            prompts: [T, input width] embeddings for each slot of ``cache``, T of its own.
            starts: position of each prompt's first embedding.

        Returns:
            float32 logits [B, speech_rows] after the last position of each prompt.
        """
        lengths = integers([len(prompt) for prompt in prompts], self.device)
        steps = torch.arange(max(map(len, prompts)), device=self.device).minimum(lengths[:, None] - 1)
        embeddings = torch.cat(list(prompts))[steps + (lengths.cumsum(0) - lengths)[:, None]]
        positions = steps + integers(starts, self.device)[:, None]
        span = max(start + len(prompt) for start, prompt in zip(starts, prompts, strict=True))
        return self.logits(self(embeddings, positions, cache, span)[:, -1])

    def decode_step(self, tokens: Tensor, positions: Tensor, cache: CacheView, span: int) -> Tensor:
        """Feed one speech token per slot.

        Shapes depend on the number of slots and ``span`` alone, and nothing is read back to the host, so a
        step can be captured in a CUDA graph. A slot that has nothing to feed passes any token at its next
        free position: the entry is overwritten before it is ever attended to.

        Args:
            tokens: [S] int64 speech ids.
            positions: [S] int64, each below ``span``.

        Returns:
            float32 logits [S, speech_rows].
        """
        embeddings = self.speech_embedding(tokens)[:, None]
        return self.logits(self(embeddings, positions[:, None], cache, span)[:, 0])


def check_tensors(config: SpeechLMConfig, tensors: Mapping[str, Tensor]) -> None:
    """Raise `CheckpointError` naming the first missing, unknown or misshapen tensor."""
    schema = llm_schema(config)
    if TEXT_HEAD not in tensors:  # This tensor is never used.
        schema.pop(TEXT_HEAD, None)
    problems = schema_problems(tensors, schema)
    if problems:
        raise CheckpointError(f"llm: {problems[0]}")


def store_by_columns(model: nn.Module) -> None:
    """Lay linear weights out column by column: a CPU multiplies one vector by them in 0.6 of the time.

    It costs nothing with more vectors, and a GPU has no need for it.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.weight.data = module.weight.data.t().contiguous().t()


def load_speech_lm(
    config: SpeechLMConfig,
    tensors: Mapping[str, Tensor],
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> SpeechDecoder:
    """The network with the weights of a checkpoint; a CheckpointError tells of a wrong tensor."""
    network: SpeechDecoder = load(speech_lm_parts(config).network)(config, tensors, device, dtype)
    return network


def sample_batch(logits: Tensor, states: Sequence[SamplerState], blocked: Blocked | None = None) -> list[int]:
    """`sampling.sample_batch` from float32 logits [B, V]."""
    scores = _scores(logits, states)
    if blocked is not None:
        barred = moved(torch.from_numpy(blocked), scores.device)
        scores[:, -barred.shape[1] :].masked_fill_(barred, -torch.inf)
    depth = depth_of(states, scores.shape[1])
    return draw(_to_host(scores, *top_candidates(scores, depth)), states)


def top_candidates(scores: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """Select as `sampling.top_candidates` does."""
    probs = scores.softmax(dim=-1)
    size = probs.shape[-1]
    rank = torch.arange(size - 1, -1, -1, device=probs.device)
    keys = (probs.view(torch.int32).long() << 32) | rank
    ids = size - 1 - (keys.topk(depth).values & 0xFFFFFFFF)
    return probs.gather(-1, ids), ids


def _scores(logits: Tensor, states: Sequence[SamplerState]) -> Tensor:
    """Log-probabilities [B, V] after temperature, then repetition penalty (the order of TensorRT-LLM)."""
    if any(state.options.temperature != 1 for state in states):
        logits = logits / logits.new_tensor([[state.options.temperature] for state in states])
    if any(state.options.repetition_penalty != 1 for state in states):
        penalty = logits.new_tensor([[state.options.repetition_penalty] for state in states])
        penalised = torch.where(logits < 0, logits * penalty, logits / penalty)
        seen = torch.from_numpy(seen_ids(states, logits.shape[1])).to(logits.device)
        logits = torch.where(seen, penalised, logits)
    return logits.log_softmax(dim=-1)


def _to_host(scores: Tensor, probs: Tensor, ids: Tensor) -> Choices:
    """The tensors on the CPU as float32, after a single transfer; ids, far below 2**24, stay exact."""
    joined = torch.cat([scores, probs, ids.float()], dim=1).cpu()
    scores, probs, ids = joined.split([scores.shape[1], probs.shape[1], ids.shape[1]], dim=1)
    return Choices(scores.numpy(), probs.numpy(), ids.long().numpy())


SPAN_STEP = 64
"""Steps attend to a multiple of this many cache positions, so that distinct shapes are few and excess is
little."""


class CachedLM:
    """`running_batch.CachedNetwork` with logits as tensors."""

    def __init__(self, lm: SpeechDecoder, cache: KVCache) -> None:
        self._lm = lm
        self._cache = cache

    def decode(self, slots: Sequence[int], tokens: Sequence[int]) -> Tensor:
        fed, positions = fed_slots(self._cache, slots, tokens)
        span = min(-(-(int(positions.max()) + 1) // SPAN_STEP) * SPAN_STEP, self._cache.max_len)
        self._cache.prepare()
        given = torch.from_numpy(np.stack([fed, positions])).to(self._lm.device)
        view = self._cache.view(0, len(fed), self._cache.adapted)
        logits = self._lm.decode_step(given[0], given[1], view, span)
        return logits if len(slots) == len(fed) else logits[integers(slots, logits.device)]

    def prefill(self, group: Sequence[Prefill]) -> Tensor:
        embeddings = [self._lm.embed(prefill.segments) for prefill in group]
        slots = [prefill.sequence.slot for prefill in group]
        starts = [prefill.start for prefill in group]
        self._cache.lengths[slots] = [prefill.end for prefill in group]
        self._cache.prepare()
        if len(group) == 1:
            view = self._cache.view(slots[0], slots[0] + 1)
            return self._lm.prefill(embeddings[0], starts[0], view)[None]
        return self._lm.prefill_batch(
            embeddings, starts, self._cache.gathered(integers(slots, self._lm.device))
        )

    def sample(self, logits: Tensor, states: Sequence[SamplerState], blocked: Blocked | None) -> list[int]:
        return sample_batch(logits, states, blocked)
