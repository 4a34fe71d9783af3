"""Steps whose ids are drawn on the host before the next step begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from cosyvoice_runtime.lm.generation import Drawn, Generation
from cosyvoice_runtime.lm.network import KVCache, SpeechLM
from cosyvoice_runtime.lm.prefills import Prefills
from cosyvoice_runtime.lm.sampling import sample_batch
from cosyvoice_runtime.transfer import integers

SPAN_STEP = 64
"""Steps attend to a multiple of this many cache positions: few distinct shapes, little excess."""


class HostSteps:
    """Feeds, draws and waits, in steps as large as needed."""

    def __init__(self, lm: SpeechLM, cache: KVCache, prefills: Prefills) -> None:
        self._lm = lm
        self._cache = cache
        self._prefills = prefills

    def advance(self, running: Sequence[Generation]) -> list[Drawn]:
        """As `Steps.advance`."""
        fed = list(self._feed(running))
        if not fed:
            return []
        sequences = [sequence for part, _ in fed for sequence in part]
        ids = self._draw(sequences, torch.cat([logits for _, logits in fed]))
        return [
            Drawn(sequence, id_, int(self._cache.lengths[sequence.slot]))
            for sequence, id_ in zip(sequences, ids, strict=True)
        ]

    def _feed(self, running: Sequence[Generation]) -> Iterator[tuple[list[Generation], Tensor]]:
        sequences = [sequence for sequence in running if sequence.unfed]
        if sequences:
            yield sequences, self._decode(sequences)
        yield from self._prefills.run(running)

    def _decode(self, sequences: list[Generation]) -> Tensor:
        slots = [sequence.slot for sequence in sequences]
        size = max(slots) + 1
        tokens = np.zeros(size, dtype=np.int64)
        tokens[slots] = [sequence.tokens[-1] for sequence in sequences]
        needed = int(self._cache.lengths[:size].max()) + 1
        span = min(-(-needed // SPAN_STEP) * SPAN_STEP, self._cache.max_len)
        # A stream that waits with a full cache has no next position; it can only end from there.
        positions = np.minimum(self._cache.lengths[:size], span - 1)
        fed = torch.from_numpy(np.stack([tokens, positions])).to(self._lm.device)
        logits = self._lm.decode_step(fed[0], fed[1], self._cache.view(0, size), span)
        self._cache.lengths[slots] += 1
        for sequence in sequences:
            sequence.unfed = False
        return logits if slots == list(range(size)) else logits[integers(slots, logits.device)]

    def _draw(self, sequences: list[Generation], logits: Tensor) -> list[int]:
        ids = [self._lm.config.fill_id] * len(sequences)
        drawing = [index for index, sequence in enumerate(sequences) if not sequence.must_fill]
        if not drawing:
            return ids
        if len(drawing) < len(sequences):
            logits = logits[drawing]
        blocked = [sequences[index].blocked for index in drawing]
        mask = torch.tensor(blocked) if any(map(any, blocked)) else None
        drawn = sample_batch(logits, [sequences[index].sampler for index in drawing], mask)
        for index, token in zip(drawing, drawn, strict=True):
            ids[index] = token
        return ids
