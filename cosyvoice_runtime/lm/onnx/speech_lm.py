"""The speech LM on ONNX Runtime: speech tokens and prompts in, logits out, over a cache written in place.

B: sequences of a pass, S: positions fed to each, V: speech rows of the head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.errors import EngineFileError
from cosyvoice_runtime.lm.cache import CacheSlots
from cosyvoice_runtime.lm.onnx.files import (
    EMBEDDINGS,
    KINDS,
    LAST,
    LOGITS,
    TOTAL,
    LmFiles,
    heads_of,
    past_name,
    present_name,
    query_name,
)
from cosyvoice_runtime.lm.onnx.heads import OnnxHeads, Queries
from cosyvoice_runtime.lm.prefills import Prefill
from cosyvoice_runtime.lm.prompt import CONTROL_ROWS, PromptSegment, Table
from cosyvoice_runtime.lm.running_batch import HostSteps, RunningBatch, fed_slots
from cosyvoice_runtime.lm.sampling import Blocked, FloatArray, IntArray, SamplerState, sample_batch
from cosyvoice_runtime.onnx.memory import ReturnedMemory, forget_mapped
from cosyvoice_runtime.onnx.session import BoundRun, open_session


class OnnxSpeechLM:
    """The weights, opened once, for operations of so many threads.

    Attributes:
        heads: layer and head of those that follow the text, if the graph gives their queries.
        session: session of steps.
        prompt_session: session of prompts: the same, or one whose matrices are faster with many positions.

    Raises:
        EngineFileError: a file is missing or not of this architecture.
    """

    def __init__(self, config: SpeechLMConfig, files: LmFiles, threads: int) -> None:
        self.config = config
        self.session = open_session(files.model, threads)
        apart = files.prompt_model.is_file()
        self.prompt_session = open_session(files.prompt_model, threads) if apart else self.session
        self.heads = heads_of(port.name for port in self.session.get_outputs())
        forget_mapped(files.weights, files.prompt_weights)
        rows = {
            Table.CONTROL: CONTROL_ROWS,
            Table.TEXT: config.text_vocab_size,
            Table.SPEECH: config.speech_rows,
        }
        self._tables = {
            table: _mapped(files.table(table), (size, config.hidden_size)) for table, size in rows.items()
        }

    def embed(self, segments: Sequence[PromptSegment]) -> FloatArray:
        """Embeddings [S, hidden] of segments, in order."""
        rows = [self._tables[table][np.asarray(ids, dtype=np.int64)] for table, ids in segments]
        return np.concatenate(rows)

    def embed_speech(self, ids: IntArray) -> FloatArray:
        """Embeddings [B, hidden] of speech ids [B]."""
        return self._tables[Table.SPEECH][ids]


class OnnxKVCache(CacheSlots):
    """Slots in the host's memory, ``data`` float32 [layers, 2, slots, kv_heads, max_len, head_dim], keys
    first."""

    def __init__(self, config: SpeechLMConfig, slots: int, max_len: int) -> None:
        super().__init__(slots, max_len)
        shape = (config.num_layers, len(KINDS), slots, config.num_kv_heads, max_len, config.head_dim)
        # What is planned for the most, and mostly holds less, takes no memory before it is written.
        self._memory = ReturnedMemory((math.prod(shape[:3]), *shape[3:]), np.float32, in_one=False)
        self.data = self._memory.array.reshape(shape)

    @property
    def bytes(self) -> int:
        return self.data.nbytes

    def wipe(self, slot: int) -> None:
        self.data[:, :, slot] = 0

    def release(self, slot: int, wipe: bool = False) -> None:
        """Give a slot and its memory back."""
        super().release(slot, wipe)
        for row in range(slot, len(self._memory.array), self.slots):
            self._memory.give_back(row)


class BoundPass:
    """Inputs and outputs of a pass over consecutive slots, bound to memory that a session reads and writes.

    Attributes:
        queries: as `heads.Queries`, of the latest run.
    """

    def __init__(self, lm: OnnxSpeechLM, cache: OnnxKVCache, first: int, size: int, positions: int) -> None:
        config = lm.config
        self._embeddings = np.empty((size, positions, config.hidden_size), np.float32)
        self._last = np.empty(size, np.int32)
        self._total = np.empty(1, np.int32)
        self._logits = np.empty((size, 1, config.speech_rows), np.float32)
        inputs = {EMBEDDINGS: self._embeddings, LAST: self._last, TOTAL: self._total}
        queries = {head: np.empty((size, 1, config.head_dim), np.float32) for head in lm.heads}
        self.queries = {head: found[:, 0] for head, found in queries.items()}
        outputs = {LOGITS: self._logits, **{query_name(*head): found for head, found in queries.items()}}
        for layer in range(config.num_layers):
            for index, kind in enumerate(KINDS):
                memory = cache.data[layer, index, first : first + size]
                inputs[past_name(layer, kind)] = outputs[present_name(layer, kind)] = memory
        session = lm.session if positions == 1 else lm.prompt_session
        self._bound = BoundRun(session, inputs, outputs)

    def run(self, embeddings: FloatArray, last: IntArray) -> FloatArray:
        """Feed embeddings [B, S, hidden], so that the last of each lies at the positions ``last`` [B].

        Returns:
            logits [B, V] after the last ones, in memory of their own.
        """
        self._embeddings[:] = embeddings
        self._last[:] = last
        self._total[:] = last.max() + 1
        self._bound.run()
        return self._logits[:, 0].copy()


class OnnxCachedLM:
    """`running_batch.CachedNetwork` with logits as arrays.

    Attributes:
        queries: as `heads.Queries`, of the latest pass.
    """

    def __init__(self, lm: OnnxSpeechLM, cache: OnnxKVCache) -> None:
        self.queries: Queries = {}
        self._lm = lm
        self._cache = cache
        self._steps: dict[int, BoundPass] = {}

    def decode(self, slots: Sequence[int], tokens: Sequence[int]) -> FloatArray:
        fed, positions = fed_slots(self._cache, slots, tokens)
        step = self._step(len(fed))
        logits = step.run(self._lm.embed_speech(fed)[:, None], positions)
        self.queries = step.queries
        return logits if len(slots) == len(fed) else logits[list(slots)]

    def prefill(self, group: Sequence[Prefill]) -> FloatArray:
        """One prompt after the other: a CPU is as fast with them as with all together."""
        logits, queries = zip(*map(self._feed, group), strict=True)
        self.queries = {head: np.concatenate([each[head] for each in queries]) for head in self._lm.heads}
        return np.concatenate(logits)

    def sample(
        self, logits: FloatArray, states: Sequence[SamplerState], blocked: Blocked | None
    ) -> list[int]:
        return sample_batch(logits, states, blocked)

    def _step(self, size: int) -> BoundPass:
        if size not in self._steps:
            self._steps[size] = BoundPass(self._lm, self._cache, 0, size, 1)
        return self._steps[size]

    def _feed(self, prefill: Prefill) -> tuple[FloatArray, Queries]:
        embeddings = self._lm.embed(prefill.segments)
        slot = prefill.sequence.slot
        self._cache.lengths[slot] = prefill.end
        one_pass = BoundPass(self._lm, self._cache, slot, 1, len(embeddings))
        return one_pass.run(embeddings[None], np.array([prefill.end - 1])), one_pass.queries


def open_batch(lm: OnnxSpeechLM, slots: int, max_len: int) -> RunningBatch:
    """An engine with room for so many utterances of so many positions, prompt and speech together."""
    cache = OnnxKVCache(lm.config, slots, max_len)
    # One prompt in a pass: on a CPU several take as long together as one after the other.
    network = OnnxCachedLM(lm, cache)
    heads = OnnxHeads(lm.config, cache, network, max_len) if lm.heads else None
    steps = HostSteps(network, cache, prefill_batch=1, fill_id=lm.config.fill_id, heads=heads)
    return RunningBatch(lm.config, cache, steps)


def _mapped(path: Path, shape: tuple[int, int]) -> FloatArray:
    """An embedding table in its file, of which memory holds the rows that are used."""
    try:
        table: FloatArray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise EngineFileError(f"{path}: not readable as an array: {error}") from error
    if table.shape != shape:
        raise EngineFileError(f"{path}: has shape {table.shape}, expected {shape}")
    return table
