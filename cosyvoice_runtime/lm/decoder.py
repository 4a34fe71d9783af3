"""In-flight batching: utterances join and leave a running batch between any two tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosyvoice_runtime.cuda_graphs import GraphCapture
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm.generation import Emission, FinishReason, Generation, TokenLimits
from cosyvoice_runtime.lm.network import KVCache, SpeechLM
from cosyvoice_runtime.lm.prompt import Prompt, PromptPart, check_speech, check_text, num_positions
from cosyvoice_runtime.lm.sampling import SamplingOptions, sample_batch
from cosyvoice_runtime.lm.step_graphs import GraphedSteps, LogitsStep
from cosyvoice_runtime.lm.text_stream import TextStream
from cosyvoice_runtime.transfer import integers

SPAN_STEP = 64
"""Steps attend to a multiple of this many cache positions: few distinct shapes, little excess."""


class DecodeSteps(Protocol):
    """Steps over the first slots of a cache."""

    def size(self, needed: int) -> int:
        """Slots that a step takes when it needs at least ``needed`` of them."""

    def span(self, needed: int) -> int:
        """Positions that a step attends to when it needs at least ``needed`` of them."""

    def run(self, tokens: npt.NDArray[np.int64], positions: npt.NDArray[np.int64], span: int) -> Tensor:
        """Feed one token to each slot; see :meth:`SpeechLM.decode_step`.

        Args:
            tokens, positions: [S], S from :meth:`size`.
            span: from :meth:`span`.

        Returns:
            float32 logits [S, speech_rows].
        """


class EagerSteps:
    """Steps as large as needed."""

    def __init__(self, lm: SpeechLM, cache: KVCache) -> None:
        self._lm = lm
        self._cache = cache

    def size(self, needed: int) -> int:
        return needed

    def span(self, needed: int) -> int:
        return min(-(-needed // SPAN_STEP) * SPAN_STEP, self._cache.max_len)

    def run(self, tokens: npt.NDArray[np.int64], positions: npt.NDArray[np.int64], span: int) -> Tensor:
        fed = torch.from_numpy(np.stack([tokens, positions])).to(self._lm.device)
        return self._lm.decode_step(fed[0], fed[1], self._cache.view(0, len(tokens)), span)


PREFILL_POSITIONS = 2048
"""Most positions, padding included, of several prompts in one pass: a longer one delays running sequences."""

DEFAULT_OPTIONS = SamplingOptions()


class Prefill(NamedTuple):
    """A sequence and the parts of its prompt to feed now."""

    sequence: Generation
    parts: Sequence[PromptPart]


class BatchDecoder:
    """Decodes up to ``slots`` utterances together, one token each per `step`.

    Not thread-safe: one owner adds, steps and cancels.

    Args:
        lm: the network; cache and decoding take its device and dtype.
        slots: utterances at a time.
        max_len: positions per utterance, prompt and generated tokens together.
        capture: steps are captured with it and replayed, on a GPU with `CudaGraphCapture`. Captured steps
            come in few sizes, so this changes logits as much as neighbours do.
        prefill_batch: prompts fed in one pass at most. More than one is faster where a pass costs the same
            for one as for several, as on a GPU.
        captured_step: what is captured; None captures the network's own step.
    """

    def __init__(
        self,
        lm: SpeechLM,
        slots: int,
        max_len: int,
        capture: GraphCapture | None = None,
        prefill_batch: int = 1,
        captured_step: LogitsStep | None = None,
    ) -> None:
        self._lm = lm
        self._prefill_batch = prefill_batch
        self._cache = KVCache(lm.config, slots, max_len, lm.device, lm.dtype)
        self._steps: DecodeSteps = EagerSteps(lm, self._cache)
        if capture is not None:
            self._steps = GraphedSteps(lm, self._cache, capture, captured_step)
        self._running: dict[int, Generation] = {}

    @property
    def free_slots(self) -> int:
        """Utterances that can be added now."""
        return self._cache.free_slots

    @property
    def active(self) -> list[Generation]:
        """Utterances that hold a slot, waiting ones included."""
        return list(self._running.values())

    @property
    def busy(self) -> bool:
        """Whether a step would do anything; False if all utterances wait for text."""
        return any(not generation.waiting for generation in self._running.values())

    @property
    def cache_bytes(self) -> int:
        """Memory of the key-value cache, allocated once."""
        return self._cache.bytes

    def add(self, prompt: Prompt, options: SamplingOptions = DEFAULT_OPTIONS) -> Generation:
        """Take a slot for an utterance whose text is known; its prompt is fed by the next `step`.

        Raises:
            InvalidInput: an id is outside its table, or prompt and wanted length don't fit into ``max_len``.
            CacheFullError: no slot is free.
        """
        prompt.check(self._lm.config)
        parts = prompt.parts()
        self._check_room(num_positions(parts), options)
        limits = TokenLimits.of(options, len(prompt.text))
        return self._admit(Generation(self._lm.config, options, prompt.prompt_speech, limits, feed=parts))

    def add_stream(
        self,
        options: SamplingOptions = DEFAULT_OPTIONS,
        prompt_text: Sequence[int] = (),
        prompt_speech: Sequence[int] = (),
        upstream_feeding: bool = False,
        lead_text: Sequence[int] = (),
    ) -> Generation:
        """Take a slot for an utterance whose text arrives through `push_text`; see `TextStream`.

        Derived length limits apply from the end of the text on; ``max_tokens``, ``ceiling`` and ``max_len``
        always do.

        Raises:
            InvalidInput: as `add`.
            CacheFullError: no slot is free.
        """
        config = self._lm.config
        check_text("prompt_text", [*lead_text, *prompt_text], config)
        check_speech("prompt_speech", prompt_speech, config)
        self._check_room(len(lead_text) + len(prompt_text) + len(prompt_speech) + 2, options)
        stream = TextStream(config, prompt_text, prompt_speech, upstream_feeding, lead_text)
        most = options.max_tokens or options.ceiling or self._cache.max_len
        limits = TokenLimits(options.min_tokens or 0, most)
        return self._admit(Generation(config, options, prompt_speech, limits, stream=stream))

    def push_text(self, generation: Generation, ids: Sequence[int]) -> None:
        """Add text to a stream; without effect once the utterance has ended.

        Raises:
            InvalidInput: an id is outside the table, or the utterance takes no further text.
        """
        check_text("text", ids, self._lm.config)
        generation.push_text(ids)

    def end_text(self, generation: Generation) -> None:
        """Say that no further text follows.

        Raises:
            InvalidInput: the utterance takes no text, or none was ever pushed.
        """
        generation.end_text()

    def cancel(self, generation: Generation) -> None:
        """End an utterance and free its slot at once; no effect if it has already ended."""
        if generation.finish_reason is None:
            generation.finish(FinishReason.CANCELLED)
            self._release(generation)

    @torch.inference_mode()
    def step(self) -> list[Emission]:
        """Bring every utterance forward by one token, those waiting for text excepted.

        An utterance whose logits are not finite ends alone, with reason ``error``.

        Returns:
            at most one emission per utterance. One that drew a fill marker has none, one without room
            for its next text ends with reason ``length``.
        """
        sequences, logits = self._feed()
        tokens: dict[Generation, int | None] = {}
        if sequences:
            drawn = zip(sequences, self._draw(sequences, torch.cat(logits)), strict=True)
            tokens = {sequence: self._accept(sequence, token) for sequence, token in drawn}
        return list(self._emissions(tokens))

    def _admit(self, generation: Generation) -> Generation:
        generation.slot = self._cache.acquire()
        self._running[generation.slot] = generation
        return generation

    def _release(self, generation: Generation) -> None:
        del self._running[generation.slot]
        self._cache.release(generation.slot, wipe=generation.finish_reason is FinishReason.ERROR)

    def _check_room(self, positions: int, options: SamplingOptions) -> None:
        room = self._cache.max_len - positions + 1  # the last token is never fed
        if room < 1:
            raise InvalidInput("prompt", f"{positions} positions", f"at most {self._cache.max_len}")
        for field in ("min_tokens", "max_tokens"):
            wanted = getattr(options, field)
            if wanted is not None and wanted > room:
                raise InvalidInput(field, wanted, f"after this prompt there is room for {room}")

    def _feed(self) -> tuple[list[Generation], list[Tensor]]:
        """Feed what is ready: the utterances concerned, and their logits as parts of [sequences, V]."""
        sequences = [sequence for sequence in self._running.values() if sequence.unfed]
        logits = [self._decode(sequences)] if sequences else []
        for group in self._prompts():
            sequences += [prompt.sequence for prompt in group]
            logits.append(self._prefill(group))
        return sequences, logits

    def _prompts(self) -> Iterator[list[Prefill]]:
        """Prompts to prefill now, in groups for one pass."""
        group: list[Prefill] = []
        for sequence in self._running.values():
            parts = sequence.take_feed()
            if parts is None:
                continue
            if self._cache.lengths[sequence.slot] + num_positions(parts) > self._cache.max_len:
                sequence.finish(FinishReason.LENGTH)
                continue
            prompt = Prefill(sequence, parts)
            longest = max(num_positions(other.parts) for other in [*group, prompt])
            padded = (len(group) + 1) * longest
            if group and (len(group) == self._prefill_batch or padded > PREFILL_POSITIONS):
                yield group
                group = []
            group.append(prompt)
        if group:
            yield group

    def _prefill(self, group: list[Prefill]) -> Tensor:
        embeddings = [self._lm.embed(prompt.parts) for prompt in group]
        slots = [prompt.sequence.slot for prompt in group]
        starts = self._cache.lengths[slots].tolist()
        self._cache.lengths[slots] += [len(embedded) for embedded in embeddings]
        if len(group) == 1:
            view = self._cache.view(slots[0], slots[0] + 1)
            return self._lm.prefill(embeddings[0], starts[0], view)[None]
        return self._lm.prefill_batch(embeddings, starts, self._cache.gathered(slots))

    def _decode(self, sequences: list[Generation]) -> Tensor:
        slots = [sequence.slot for sequence in sequences]
        size = self._steps.size(max(slots) + 1)
        tokens = np.zeros(size, dtype=np.int64)
        tokens[slots] = [sequence.tokens[-1] for sequence in sequences]
        span = self._steps.span(min(int(self._cache.lengths[:size].max()) + 1, self._cache.max_len))
        # A stream that waits with a full cache has no next position; it can only end from there.
        positions = np.minimum(self._cache.lengths[:size], span - 1)
        logits = self._steps.run(tokens, positions, span)
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

    def _accept(self, sequence: Generation, drawn: int) -> int | None:
        token = sequence.accept(drawn)
        if sequence.unfed and self._cache.lengths[sequence.slot] == self._cache.max_len:
            sequence.finish(FinishReason.LENGTH)
        return token

    def _emissions(self, tokens: dict[Generation, int | None]) -> Iterator[Emission]:
        for sequence in self.active:
            token = tokens.get(sequence)
            if token is not None or sequence.finish_reason is not None:
                yield Emission(sequence, token, sequence.finish_reason)
            if sequence.finish_reason is not None:
                self._release(sequence)
