"""In-flight batching: utterances join and leave a running batch between any two tokens; steps on the host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm.cache import CacheSlots, CacheUse
from cosyvoice_runtime.lm.generation import Drawn, Emission, FinishReason, Generation, TokenLimits
from cosyvoice_runtime.lm.prefills import Prefill, Prefills, Residents
from cosyvoice_runtime.lm.prompt import Prompt, check_speech, check_text, num_positions
from cosyvoice_runtime.lm.sampling import Blocked, IntArray, SamplerState, SamplingOptions
from cosyvoice_runtime.lm.text_stream import TextStream


class Steps(Protocol):
    """Brings sequences of a cache forward."""

    def advance(self, running: Sequence[Generation]) -> list[Drawn]:
        """Feed what is ready, and say what has been drawn, in order; mostly one id for each sequence.

        The caller has every id accepted before the next call, but for those behind the end of a sequence.
        One whose next text would make it too long is ended.

        Args:
            running: in the order in which they were added.
        """


DEFAULT_OPTIONS = SamplingOptions()


class RunningBatch:
    """Decodes as many utterances together as the cache has slots, one token each per `step`.

    One for which the cache has no room waits with its slot, and goes on when others have ended.
    Not thread-safe: one owner adds, steps and cancels.

    Args:
        cache: an utterance has at most as many positions as a slot, prompt and generated tokens together.
        steps: of a network over this cache.
    """

    def __init__(self, config: SpeechLMConfig, cache: CacheSlots, steps: Steps) -> None:
        self._config = config
        self._cache = cache
        self._steps = steps
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

    @property
    def cache_use(self) -> CacheUse:
        """Present use of the cache."""
        return self._cache.use

    def add(self, prompt: Prompt, options: SamplingOptions = DEFAULT_OPTIONS) -> Generation:
        """Take a slot for an utterance whose text is known; its prompt is fed by the next `step`.

        Raises:
            InvalidInput: an id is outside its table, or prompt and wanted length don't fit into ``max_len``.
            CacheFullError: no slot is free.
        """
        prompt.check(self._config)
        parts = prompt.parts()
        self._check_room(num_positions(parts), options)
        limits = TokenLimits.of(options, len(prompt.text))
        return self._admit(Generation(self._config, options, prompt.prompt_speech, limits, feed=parts))

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
        config = self._config
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
        check_text("text", ids, self._config)
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

    def step(self) -> list[Emission]:
        """Bring every utterance forward by one token, those waiting for text excepted.

        An utterance whose logits are not finite ends alone, with reason ``error``.

        Returns:
            the emissions in order, mostly one per utterance. One that drew a fill marker has none, one
            without room for its next text ends with reason ``length``. With captured steps the tokens are
            those of the step before: the first call for an utterance brings none, and the second one two.
        """
        emissions = self._emissions(self._steps.advance(self.active))
        ended = [each for each in self._running.values() if each.finish_reason is not None]
        if ended:
            told = {generation for generation, _, reason in emissions if reason is not None}
            emissions += [(each, None, each.finish_reason) for each in ended if each not in told]
            for each in ended:
                self._release(each)
            if not self._running:
                self._cache.tidy()
        return emissions

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

    def _emissions(self, drawn: Iterable[Drawn]) -> list[Emission]:
        """Have ids accepted; those that are speech."""
        max_len = self._cache.max_len
        emissions: list[Emission] = []
        for sequence, id_, position in drawn:
            if sequence.finish_reason is not None:  # by the id before
                continue
            token = sequence.accept(id_)
            if token is not None:
                if position == max_len:
                    sequence.finish(FinishReason.LENGTH)
                emissions.append((sequence, token, sequence.finish_reason))
        return emissions


Logits = Any
"""[B, V] float32 in the form that the network's own `CachedNetwork.sample` takes; rows by a list of them."""


class CachedNetwork(Protocol):
    """A network over a cache whose slots' lengths it brings forward."""

    def decode(self, slots: Sequence[int], tokens: Sequence[int]) -> Logits:
        """Feed a speech token to each of these slots, which are in ascending order."""

    def prefill(self, group: Sequence[Prefill]) -> Logits:
        """Feed parts of prompts in one pass."""

    def sample(self, logits: Logits, states: Sequence[SamplerState], blocked: Blocked | None) -> list[int]:
        """As `sampling.sample_batch`."""


class HostSteps:
    """Feeds, draws and waits, in steps as large as needed.

    Args:
        prefill_batch: prompts fed in one pass at most.
        fill_id: of the fill marker.
    """

    def __init__(self, network: CachedNetwork, cache: CacheSlots, prefill_batch: int, fill_id: int) -> None:
        self._network = network
        self._cache = cache
        self._residents = Residents(cache)
        self._prefills = Prefills(cache, self._residents, prefill_batch)
        self._fill_id = fill_id

    def advance(self, running: Sequence[Generation]) -> list[Drawn]:
        """As `Steps.advance`."""
        return [drawn for sequences, logits in self._feed(running) for drawn in self._draw(sequences, logits)]

    def _feed(self, running: Sequence[Generation]) -> Iterator[tuple[list[Generation], Logits]]:
        sequences = self._residents.going_on([each for each in running if each.unfed], running)
        if sequences:
            ordered = sorted(sequences, key=lambda sequence: sequence.slot)
            yield ordered, self._decode(ordered)
        for group in self._prefills.groups(running):
            yield [prefill.sequence for prefill in group], self._network.prefill(group)

    def _decode(self, sequences: list[Generation]) -> Logits:
        slots = [sequence.slot for sequence in sequences]
        logits = self._network.decode(slots, [sequence.tokens[-1] for sequence in sequences])
        for sequence in sequences:
            sequence.unfed = False
        return logits

    def _draw(self, sequences: list[Generation], logits: Logits) -> Iterator[Drawn]:
        ids = [self._fill_id] * len(sequences)
        drawing = [index for index, sequence in enumerate(sequences) if not sequence.must_fill]
        if drawing:
            chosen = logits if len(drawing) == len(sequences) else logits[drawing]
            samplers = [sequences[index].sampler for index in drawing]
            blocked = blocked_ids([sequences[index] for index in drawing])
            for index, id_ in zip(drawing, self._network.sample(chosen, samplers, blocked), strict=True):
                ids[index] = id_
        for sequence, id_ in zip(sequences, ids, strict=True):
            yield sequence, id_, int(self._cache.lengths[sequence.slot])


def blocked_ids(sequences: Sequence[Generation]) -> Blocked | None:
    """Stop ids that must not be drawn next; None if all may."""
    blocked = np.array([sequence.blocked for sequence in sequences])
    return blocked if blocked.any() else None


def fed_slots(cache: CacheSlots, slots: Sequence[int], tokens: Sequence[int]) -> tuple[IntArray, IntArray]:
    """Token and position of every slot up to the last of ``slots``; brings their lengths forward.

    A slot that has nothing to feed passes any token at its next free position: what is written there is
    overwritten before it is ever attended to. One that waits with a full cache has no such position; it can
    only end from there, and passes its last.

    Returns:
        both int64 [last slot + 1].
    """
    size = slots[-1] + 1
    fed = np.zeros(size, dtype=np.int64)
    fed[slots] = tokens
    positions = np.minimum(cache.lengths[:size], cache.max_len - 1)
    cache.lengths[list(slots)] += 1
    return fed, positions
