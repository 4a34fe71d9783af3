"""An engine whose tokens tell whose they are, and a reader that remembers what it got."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.lm import FinishReason, Prompt, SamplingOptions
from cosyvoice_runtime.lm.generation import Progress
from cosyvoice_runtime.lm.scheduler.request import Request
from cosyvoice_runtime.lm.scheduler.scheduler import Scheduler

TIMEOUT_S = 120.0
SPAN = 1000


def coded_request(name: int, tokens: int, request_id: str = "", streaming: bool = True) -> Request:
    """A request for ``tokens`` tokens, which are ``name * SPAN`` and the ones after it."""
    return Request(Prompt([name]), SamplingOptions(max_tokens=tokens), streaming, id=request_id)


def open_request(name: int, request_id: str, room: int = 100) -> Request:
    """A request whose text comes later: a token ``name * SPAN + i`` for each id i of it."""
    prompt = Prompt((), prompt_text=[name])
    return Request(prompt, SamplingOptions(max_tokens=1), streaming=True, id=request_id, text_room=room)


def coded_tokens(name: int, tokens: int) -> list[int]:
    return list(range(name * SPAN, name * SPAN + tokens))


@dataclass
class CodedSequence:
    """An utterance in the engine."""

    name: int
    tokens: int
    drawn: int = 0
    text: list[int] | None = None
    complete: bool = False

    @property
    def waits(self) -> bool:
        return self.text == [] and not self.complete


class CodedEngine:
    """One token per step and utterance, or ``rows``.

    Args:
        prefill_batch: by default, as many as there are slots.

    Attributes:
        steps: names in the batch, for each step so far.
        gate: when not None, every step takes one permit.
        arrived: gets a permit whenever a step begins, and so everything before it is done.
        refused: names that `add` does not accept.
        broken: names that end with an error of their own at the next step.
        rows: tokens of an utterance per step, each in a progress of its own.
        failure, add_failure, close_failure: raised by the next step, by every `add`, or by `close`.
    """

    def __init__(self, slots: int = 2, prefill_batch: int | None = None) -> None:
        self.slots = slots
        self.prefill_batch = prefill_batch or slots
        self.steps: list[list[int]] = []
        self.gate: threading.Semaphore | None = None
        self.arrived = threading.Semaphore(0)
        self.refused: set[int] = set()
        self.broken: set[int] = set()
        self.rows = 1
        self.failure: Exception | None = None
        self.add_failure: Exception | None = None
        self.close_failure: Exception | None = None
        self.closed = 0
        self._sequences: dict[int, CodedSequence] = {}
        self._next_handle = 0

    @property
    def names(self) -> list[int]:
        return [sequence.name for sequence in self._sequences.values()]

    def add(self, prompt: Prompt, options: SamplingOptions) -> int:
        name = prompt.text[0]
        if name in self.refused:
            raise CosyVoiceError(f"{name} is refused")
        if self.add_failure is not None:
            raise self.add_failure
        assert len(self._sequences) < self.slots
        assert options.max_tokens is not None
        self._next_handle += 1
        self._sequences[self._next_handle] = CodedSequence(name, options.max_tokens)
        return self._next_handle

    def add_open(self, prompt: Prompt, options: SamplingOptions) -> int:
        self._next_handle += 1
        self._sequences[self._next_handle] = CodedSequence(prompt.prompt_text[0], 0, text=[])
        return self._next_handle

    def push_text(self, handle: object, ids: Sequence[int]) -> None:
        self._open(handle).extend(ids)

    def end_text(self, handle: object) -> None:
        self._open(handle)
        self._sequences[handle].complete = True

    def waits_for_text(self, handle: object) -> bool:
        return self._sequences[handle].waits

    def step(self) -> list[Progress]:
        return self._advanced(self._sequences)

    def _advanced(self, handles: Iterable[int]) -> list[Progress]:
        self.arrived.release()
        if self.gate is not None:
            assert self.gate.acquire(timeout=TIMEOUT_S)
        if self.failure is not None:
            raise self.failure
        ready = [handle for handle in handles if not self._sequences[handle].waits]
        self.steps.append([self._sequences[handle].name for handle in ready])
        return [self._draw(handle) for handle in ready for _ in range(self.rows) if handle in self._sequences]

    def cancel(self, handle: object) -> None:
        assert isinstance(handle, int)
        self._sequences.pop(handle, None)

    def close(self) -> None:
        self.closed += 1
        if self.close_failure is not None:
            raise self.close_failure

    def _draw(self, handle: int) -> Progress:
        sequence = self._sequences[handle]
        if sequence.name in self.broken:
            del self._sequences[handle]
            return Progress(handle, [], FinishReason.ERROR, CosyVoiceError(f"{sequence.name} is broken"))
        if sequence.text is not None:
            return self._say(handle, sequence, sequence.text)
        token = sequence.name * SPAN + sequence.drawn
        sequence.drawn += 1
        if sequence.drawn < sequence.tokens:
            return Progress(handle, [token])
        del self._sequences[handle]
        return Progress(handle, [token], FinishReason.LENGTH)

    def _open(self, handle: object) -> list[int]:
        assert isinstance(handle, int)
        text = self._sequences[handle].text
        assert text is not None
        assert not self._sequences[handle].complete
        return text

    def _say(self, handle: int, sequence: CodedSequence, text: list[int]) -> Progress:
        tokens = [sequence.name * SPAN + text.pop(0)] if text else []
        if text or not sequence.complete:
            return Progress(handle, tokens)
        del self._sequences[handle]
        return Progress(handle, tokens, FinishReason.STOP)


class SelectiveCodedEngine(CodedEngine):
    """It can also step some utterances while others wait; ``apart`` counts how often it did."""

    apart = 0

    def step_some(self, first: Collection[int]) -> list[Progress]:
        self.apart += 1
        return self._advanced(first)


@dataclass
class CollectingReader:
    """
    Attributes:
        hold: `send` waits for it, if there is one.
        leave_after: tokens after which the reader is gone.
        gone: whether it wants no further tokens.
        failure: raised by `cancelled`.
        end_failure: raised by `finish` after it has noted the end.
    """

    hold: threading.Event | None = None
    leave_after: int | None = None
    gone: bool = False
    failure: Exception | None = None
    end_failure: Exception | None = None
    groups: list[list[int]] = field(default_factory=list)
    rows: list[Floats | None] = field(default_factory=list)
    reasons: list[FinishReason | None] = field(default_factory=list)
    ends: list[Exception | None] = field(default_factory=list)
    sending: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def cancelled(self) -> bool:
        if self.failure is not None:
            raise self.failure
        return self.gone

    @property
    def tokens(self) -> list[int]:
        return [token for group in self.groups for token in group]

    @property
    def reason(self) -> FinishReason | None:
        return self.reasons[-1]

    def send(
        self, tokens: Sequence[int], finish_reason: FinishReason | None, rows: Floats | None = None
    ) -> None:
        self.sending.set()
        if self.hold is not None:
            assert self.hold.wait(TIMEOUT_S)
        if self.leave_after is not None and len(self.tokens) >= self.leave_after:
            self.gone = True
        if self.gone:
            raise ConnectionError("the reader has gone")
        self.groups.append(list(tokens))
        self.rows.append(rows)
        self.reasons.append(finish_reason)

    def finish(self, error: Exception | None) -> None:
        self.ends.append(error)
        self.ended.set()
        if self.end_failure is not None:
            raise self.end_failure

    def wait(self) -> CollectingReader:
        """Return when the request has ended, which it must do once."""
        assert self.ended.wait(TIMEOUT_S)
        return self


ENDLESS = 10**7
"""Tokens of a request that only a stop ends."""


def submit(scheduler: Scheduler, name: int, tokens: int, request_id: str = "", **reader) -> CollectingReader:
    recorder = CollectingReader(**reader)
    scheduler.submit(coded_request(name, tokens, request_id), recorder)
    return recorder


def submit_together(scheduler: Scheduler, names: Iterable[int], tokens: int) -> list[CollectingReader]:
    """Ask for several before the scheduler looks at any of them."""
    with scheduler._changed:
        return [submit(scheduler, name, tokens) for name in names]


def close_gate(engine: CodedEngine) -> threading.Semaphore:
    """Every step waits for a permit from now on."""
    engine.gate = threading.Semaphore(0)
    return engine.gate


def open_gate(engine: CodedEngine) -> None:
    """Let the engine run freely."""
    gate, engine.gate = engine.gate, None
    gate.release()


def wait_for_step(engine: CodedEngine) -> None:
    """Wait until one more step begins."""
    assert engine.arrived.acquire(timeout=TIMEOUT_S)
