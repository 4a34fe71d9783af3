"""In-flight batching: utterances join and leave a running batch between any two tokens; steps on the host."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, cast

import numpy as np

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm.cache import CacheSlots, CacheUse
from cosyvoice_runtime.lm.generation import Drawn, FinishReason, Generation, Progress, TokenLimits
from cosyvoice_runtime.lm.prefills import Prefill, Prefills, Residents
from cosyvoice_runtime.lm.prompt import NO_ADAPTERS, Prompt, check_text, num_positions
from cosyvoice_runtime.lm.sampling import Blocked, IntArray, SamplerState, SamplingOptions, check_room
from cosyvoice_runtime.lm.text_rows import FollowedHeads, LookedRows, TextRows
from cosyvoice_runtime.lm.text_stream import TextStream


class Steps(Protocol):
    """Brings sequences of a cache forward."""

    def follow(self, sequence: Generation, text: slice) -> TextRows | None:
        """Rows of attention to these positions of a new sequence's text; None if they are not seen."""

    def advance(self, running: Sequence[Generation]) -> list[Drawn]:
        """Feed the sequences, and return ids that were drawn, in order; mostly one for each sequence.

        The caller has every id accepted before the next call, except ids behind the end of a sequence. A
        sequence that its next text would make too long is ended.

        Args:
            running: the sequences, in the order in which they were added.
        """


DEFAULT_OPTIONS = SamplingOptions()


class RunningBatch:
    """An engine that decodes as many utterances together as the cache has slots; handles are `Generation`.

    An utterance for which the cache has no room keeps its slot, and goes on when others have ended. Not
    thread-safe: one owner adds, steps and cancels.

    Args:
        cache: an utterance has at most as many positions as a slot, prompt and generated tokens together.
        steps: steps of a network over this cache.
        prefill_batch: most prompts that a step feeds in one pass.
        adapters: names of the adapters that prompts may name; None where the network can have none.
    """

    def __init__(
        self,
        config: SpeechLMConfig,
        cache: CacheSlots,
        steps: Steps,
        prefill_batch: int = 1,
        adapters: Sequence[str] | None = None,
    ) -> None:
        self.slots = cache.slots
        self.prefill_batch = prefill_batch
        self._config = config
        self._cache = cache
        self._steps = steps
        self._adapters = adapters or ()
        self._no_adapters = NO_ADAPTERS if adapters is None else "the checkpoint's folder adapters has none"
        self._running: dict[int, Generation] = {}

    @property
    def free_slots(self) -> int:
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
        """Bytes of the key-value cache, allocated once."""
        return self._cache.bytes

    @property
    def cache_use(self) -> CacheUse:
        return self._cache.use

    def add(self, prompt: Prompt, options: SamplingOptions = DEFAULT_OPTIONS) -> Generation:
        """Take a slot for an utterance whose text is known; its prompt is fed by the next `step`.

        Raises:
            InvalidInput: an id is outside its table, there is no such adapter, or prompt and wanted length
                don't fit into a slot.
            CacheFullError: no slot is free.
        """
        prompt.check(self._config)
        segments = prompt.segments()
        self._check_room(num_positions(segments), options)
        limits = TokenLimits.of(options, len(prompt.text))
        return self._admit(
            Generation(self._config, options, prompt.prompt_speech, limits, segments, given=prompt.spoken),
            prompt.adapter,
        )

    def add_open(self, prompt: Prompt, options: SamplingOptions = DEFAULT_OPTIONS) -> Generation:
        """Take a slot for an utterance whose text arrives through `push_text`; raises as `add`.

        The prompt's own text is not read. Derived length limits apply from the end of the text on;
        ``max_tokens``, ``ceiling`` and the size of a slot always do.
        """
        prompt.check_voice(self._config)
        fed = len(prompt.lead_text) + len(prompt.prompt_text) + len(prompt.prompt_speech) + 2
        self._check_room(fed, options)
        stream = TextStream(self._config, prompt.prompt_text, prompt.prompt_speech, prompt.lead_text)
        most = options.max_tokens or options.ceiling or self._cache.max_len
        limits = TokenLimits(options.min_tokens or 0, most)
        return self._admit(
            Generation(
                self._config, options, prompt.prompt_speech, limits, stream=stream, given=prompt.spoken
            ),
            prompt.adapter,
        )

    def follow(self, handle: Hashable, text: slice) -> TextRows | None:
        """Tell what the tokens of an utterance look at in its text, which was added whole.

        It is called before the first step of the utterance. Tokens that were given have no rows, nor does an
        utterance that has some.

        Args:
            text: positions of the text, `Prompt.text_positions`.
        """
        generation = cast(Generation, handle)
        generation.rows = None if generation.given else self._steps.follow(generation, text)
        return generation.rows

    def push_text(self, handle: Hashable, ids: Sequence[int]) -> None:
        """Add text to a stream, which has no effect after the utterance has ended.

        Raises:
            InvalidInput: an id is outside the table, or the utterance takes no further text.
        """
        check_text("text", ids, self._config)
        cast(Generation, handle).push_text(ids)

    def end_text(self, handle: Hashable) -> None:
        """Close a stream of text; an InvalidInput if the utterance takes none, or none was ever pushed."""
        cast(Generation, handle).end_text()

    def waits_for_text(self, handle: Hashable) -> bool:
        return cast(Generation, handle).waiting

    def cancel(self, handle: Hashable) -> None:
        """End an utterance and free its slot at once; no effect if it has already ended."""
        generation = cast(Generation, handle)
        if generation.finish_reason is None:
            generation.finish(FinishReason.CANCELLED)
            self._release(generation)

    def close(self) -> None:
        """Free the cache and the network."""
        del self._steps, self._cache

    def step(self) -> list[Progress]:
        """Bring every utterance forward by one token, unless it waits for text.

        Given tokens are no progress: what draws on the host comes through them by draws, so that the seed's
        noise comes as far as they do; captured steps count draws, and are fed all given tokens at once.

        An utterance whose logits are not finite ends alone, with reason ``error``. One that drew a fill
        marker makes no progress, and one without room for its next text ends with reason ``length``. With
        captured steps the tokens are those of the step before: the first call for an utterance brings none,
        and the second one two.
        """
        return self._progress(self._steps.advance(self.active))

    def _progress(self, drawn: Iterable[Drawn]) -> list[Progress]:
        """Progress by ids that were drawn; utterances that have ended give up their slots."""
        progress = self._accepted(drawn)
        ended = [each for each in self._running.values() if each.finish_reason is not None]
        if ended:
            told = {each.handle for each in progress if each.finish_reason is not None}
            progress += [
                Progress(each, [], each.finish_reason, each.error) for each in ended if each not in told
            ]
            for each in ended:
                self._release(each)
            if not self._running:
                self._cache.tidy()
        return progress

    def _admit(self, generation: Generation, adapter: str) -> Generation:
        if adapter and adapter not in self._adapters:
            limit = f"one of {', '.join(self._adapters)}" if self._adapters else self._no_adapters
            raise InvalidInput("adapter", adapter, limit)
        number = 1 + self._adapters.index(adapter) if adapter else 0
        generation.slot = self._cache.acquire(number)
        self._running[generation.slot] = generation
        return generation

    def _release(self, generation: Generation) -> None:
        if generation.rows is not None:
            generation.rows.close()
        del self._running[generation.slot]
        self._cache.release(generation.slot, wipe=generation.finish_reason is FinishReason.ERROR)

    def _check_room(self, positions: int, options: SamplingOptions) -> None:
        room = self._cache.max_len - positions + 1  # The last token is never fed.
        if room < 1:
            raise InvalidInput("prompt", f"{positions} positions", f"at most {self._cache.max_len}")
        check_room(options, room)

    def _accepted(self, drawn: Iterable[Drawn]) -> list[Progress]:
        """Progress by ids that are speech, after all ids have been accepted."""
        max_len = self._cache.max_len
        progress: list[Progress] = []
        for sequence, id_, position in drawn:
            if sequence.finish_reason is not None:  # The id before has ended it.
                continue
            token = sequence.accept(id_)
            if token is not None:
                if position == max_len:
                    sequence.finish(FinishReason.LENGTH)
                if len(sequence.tokens) > len(sequence.given):
                    progress.append(Progress(sequence, [token], sequence.finish_reason))
        return progress


Logits = Any
"""Float32 [B, V] in the form that the network's own `CachedNetwork.sample` takes; a list of rows indexes
it."""


class CachedNetwork(Protocol):
    """A network over a cache whose slots' lengths it brings forward."""

    def decode(self, slots: Sequence[int], tokens: Sequence[int]) -> Logits:
        """Feed a speech token to each of these slots, which are in ascending order."""

    def prefill(self, group: Sequence[Prefill]) -> Logits:
        """Feed prompt segments of several sequences in one pass."""

    def sample(self, logits: Logits, states: Sequence[SamplerState], blocked: Blocked | None) -> list[int]:
        """Draw as `sampling.sample_batch` does."""


class HostSteps:
    """Steps that draw on the host, and wait for each draw.

    Args:
        fill_id: id of the fill marker.
        heads: those that follow the text; None where no row is seen.
    """

    def __init__(
        self,
        network: CachedNetwork,
        cache: CacheSlots,
        prefill_batch: int,
        fill_id: int,
        heads: FollowedHeads | None = None,
    ) -> None:
        self._heads = heads
        self._network = network
        self._cache = cache
        self._residents = Residents(cache)
        self._prefills = Prefills(cache, self._residents, prefill_batch)
        self._fill_id = fill_id

    def advance(self, running: Sequence[Generation]) -> list[Drawn]:
        return [drawn for sequences, logits in self._feed(running) for drawn in self._draw(sequences, logits)]

    def follow(self, sequence: Generation, text: slice) -> TextRows | None:  # noqa: ARG002
        return None if self._heads is None else LookedRows(text)

    def _feed(self, running: Sequence[Generation]) -> Iterator[tuple[list[Generation], Logits]]:
        sequences = self._residents.going_on([each for each in running if each.unfed], running)
        if sequences:
            ordered = sorted(sequences, key=lambda sequence: sequence.slot)
            slots = [sequence.slot for sequence in ordered]  # A step feeds all slots up to the last one.
            yield ordered, self._watched(ordered, slots, partial(self._decode, ordered))
        for group in self._prefills.groups(running):
            fed = [prefill.sequence for prefill in group]
            yield fed, self._watched(fed, range(len(fed)), partial(self._network.prefill, group))

    def _watched(
        self, sequences: Sequence[Generation], places: Sequence[int], feed: Callable[[], Logits]
    ) -> Logits:
        """Logits of a pass, of which those sequences get a row that are followed.

        Args:
            places: of the sequences in the pass.
        """
        followed = [
            (place, each.slot, each.rows)
            for place, each in zip(places, sequences, strict=True)
            if isinstance(each.rows, LookedRows)
        ]
        if self._heads is None or not followed:
            return feed()
        with self._heads.watched():
            logits = feed()
        for place, slot, rows in followed:
            rows.look(self._heads.row(place, slot, rows.text))
        return logits

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
