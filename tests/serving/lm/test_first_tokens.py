"""The first tokens of a stream, handed to another model of the process before their reader has them."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from coded_engine import TIMEOUT_S, CodedEngine, coded_tokens
from triton_python_backend_utils import InferenceRequest, ResponseSender

from cosyvoice_runtime.errors import NotFoundError
from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.serving.lm import model as module
from cosyvoice_runtime.serving.lm.first_tokens import FirstTokens, Spoken
from cosyvoice_runtime.serving.lm.model import SpeechLmModel
from cosyvoice_runtime.serving.triton.schema import TENSORRT_LLM
from cosyvoice_runtime.settings import Machine, TensorrtLlmSettings

Groups = list[tuple[list[int], FinishReason | None]]
STOP = FinishReason.STOP
STEPS = 10_000
"""More than any test needs."""


def handed_over(groups: Groups, count: int = 3, silent: tuple[int, ...] = ()) -> list[Spoken | None]:
    """What a taker that was there first is given of these."""
    first, taken = FirstTokens("id", count, silent), []
    first.give_to(taken.append)
    for tokens, reason in groups:
        first.add(tokens, reason)
    return taken


@pytest.mark.parametrize(
    "groups",
    [
        [([0, 1, 2], None)],
        [([0, 1, 2, 3, 4], None)],
        [([0], None), ([1], None), ([2], None)],
        [([0], None), ([], None), ([1, 2, 3], None)],
        [([0, 1, 2], STOP)],
        [([0, 1, 2, 3], STOP)],
        [([0, 1], None), ([2], FinishReason.LENGTH)],
    ],
)
def test_as_many_as_are_waited_for_are_not_the_last(groups):
    assert handed_over(groups) == [Spoken([0, 1, 2], last=False)]


@pytest.mark.parametrize("reason", [STOP, FinishReason.LENGTH, FinishReason.REPETITION])
@pytest.mark.parametrize("groups", [[[0, 1]], [[0], [1]], [[0, 1], []]])
def test_stream_that_ends_before_hands_over_all_there_is_as_the_last(groups, reason):
    *before, end = groups
    assert handed_over([*((tokens, None) for tokens in before), (end, reason)]) == [Spoken([0, 1], last=True)]


def test_stream_without_tokens_hands_over_that_there_are_none():
    assert handed_over([([], STOP)]) == [Spoken([], last=True)]


@pytest.mark.parametrize("reason", [FinishReason.CANCELLED, FinishReason.ERROR])
@pytest.mark.parametrize("groups", [[[]], [[0], [1]], [[0, 1, 2]]])
def test_stream_that_nobody_is_to_hear_hands_over_nothing(groups, reason):
    *before, end = groups
    assert handed_over([*((tokens, None) for tokens in before), (end, reason)]) == [None]


@pytest.mark.parametrize("groups", [[], [([0, 1], None)]])
def test_nothing_is_handed_over_before_there_is_enough_or_the_end(groups):
    assert handed_over(groups) == []


@pytest.mark.parametrize("before", [[], [0, 1]])
def test_end_without_a_reason_hands_over_nothing(before):
    first, taken = FirstTokens("id", 3), []
    first.give_to(taken.append)
    first.add(before, None)
    first.end()
    first.end()
    assert taken == [None]


def test_tokens_leave_once_however_much_follows():
    first, taken = FirstTokens("id", 3), []
    first.give_to(taken.append)
    for _ in range(3):
        first.add([0, 1, 2], None)
    first.add([3], STOP)
    first.end()
    first.add([], FinishReason.CANCELLED)
    assert taken == [Spoken([0, 1, 2], last=False)]


def test_nothing_leaves_after_the_end():
    first, taken = FirstTokens("id", 3), []
    first.give_to(taken.append)
    first.end()
    first.add([0, 1, 2], STOP)
    assert taken == [None]


def test_tokens_that_came_before_their_taker_are_handed_over_too():
    first, taken = FirstTokens("id", 3), []
    first.add([0, 1], None)
    first.give_to(taken.append)
    first.add([2], None)
    assert taken == [Spoken([0, 1, 2], last=False)]


@pytest.mark.parametrize("groups", [[([0, 1, 2], None)], [([0], STOP)], [([], FinishReason.ERROR)], None])
def test_whoever_comes_after_they_have_left_is_told(groups):
    first, taken = FirstTokens("id", 3), []
    if groups is None:
        first.end()
    for tokens, reason in groups or []:
        first.add(tokens, reason)
    with pytest.raises(NotFoundError, match="tokens_of: 'id' is unknown; its first tokens have left"):
        first.give_to(taken.append)
    assert taken == []


def test_second_taker_is_refused_and_the_first_one_keeps_them():
    first, taken, others = FirstTokens("id", 3), [], []
    first.give_to(taken.append)
    for add in (lambda: None, lambda: first.add([0, 1, 2], None)):
        add()
        with pytest.raises(NotFoundError, match="or are somebody else's"):
            first.give_to(others.append)
    assert (taken, others) == ([Spoken([0, 1, 2], last=False)], [])


@pytest.mark.parametrize("group", [1, 4, 100])
def test_long_silence_is_neither_counted_nor_handed_over(group):
    codes = [7, *[1, 2] * 4, 7, 2, 8, 9]
    groups = [(codes[start : start + group], None) for start in range(0, len(codes), group)]
    heard = [7, 1, 2, 1, 2, 1, 7, 2, 8, 9]
    for count in (5, 6, 9, 10):
        assert handed_over(groups, count, (1, 2)) == [Spoken(heard[:count], last=False)]
    assert handed_over(groups, 11, (1, 2)) == []
    assert handed_over([*groups, ([7], STOP)], 12, (1, 2)) == [Spoken([*heard, 7], last=True)]


def test_taker_and_tokens_that_come_at_the_same_time_meet_or_the_taker_is_told():
    for _ in range(300):
        first, taken, together = FirstTokens("id", 1), [], threading.Barrier(2)

        def add(first=first, together=together) -> None:
            together.wait(TIMEOUT_S)
            first.add([0], None)

        adding = threading.Thread(target=add)
        adding.start()
        together.wait(TIMEOUT_S)
        try:
            first.give_to(taken.append)
            told = False
        except NotFoundError:
            told = True
        adding.join()
        assert taken == ([] if told else [Spoken([0], last=False)])


class NotingSender(ResponseSender):
    """Writes what the reader of a stream gets into a list that others write to, too."""

    def __init__(self, events: list[Any]) -> None:
        super().__init__()
        self.final = threading.Event()
        self._events = events

    def send(self, response: Any = None, flags: int = 0) -> None:
        self._events.append("the reader has something")
        super().send(response, flags)
        if flags:
            self.final.set()


class OpenedLm:
    """The served model over an engine whose steps wait until they are let go.

    Attributes:
        events: what takers and readers got, in this order.
    """

    def __init__(self, model: SpeechLmModel, engine: CodedEngine) -> None:
        self.model, self._engine = model, engine
        self.events: list[Any] = []
        engine.gate = threading.Semaphore(0)

    def ask(self, request_id: str = "id", name: int = 5, tokens: int = 6, **inputs: Any) -> NotingSender:
        """A stream of so many tokens, unless the inputs say something else."""
        vocabulary = self.model.vocabulary
        ids = [vocabulary.sos_id, name, vocabulary.task_id]
        whole = {"input_ids": ids, "request_output_len": tokens, "streaming": True, "first_tokens": 3}
        return self.tell(request_id, **whole | {"group_tokens": 3} | inputs)

    def tell(self, request_id: str = "id", **inputs: Any) -> NotingSender:
        request = InferenceRequest(TENSORRT_LLM.encode(**inputs), request_id)
        request.sender = NotingSender(self.events)
        self.model.execute([request])
        return request.sender

    def take(self, request_id: str = "id") -> None:
        self.model.first_tokens(request_id, self.events.append)

    def go_on(self, *senders: NotingSender) -> list[Any]:
        """Let the engine run until these streams have ended; what others than readers got."""
        self._engine.gate.release(STEPS)
        for sender in senders:
            assert sender.final.wait(TIMEOUT_S)
        return [event for event in self.events if not isinstance(event, str)]

    @property
    def listed(self) -> list[str]:
        """Ids of the streams whose first tokens are kept."""
        return list(self.model._first_tokens)


@pytest.fixture
def lm(tiny_checkpoint, engine: CodedEngine, monkeypatch) -> Iterator[OpenedLm]:
    monkeypatch.setattr(module, "prepare_engine", lambda *_: lambda: engine)
    settings = TensorrtLlmSettings(checkpoint_dir=tiny_checkpoint, engine="torch")
    opened = OpenedLm(SpeechLmModel(settings.resolved(Machine(cores=1, gpu=False))), engine)
    yield opened
    opened.go_on()
    opened.model.finalize()
    assert opened.listed == []


def unknown(
    lm: OpenedLm, request_id: str = "id", match: str = "no stream of the speech LM has this id"
) -> None:
    with pytest.raises(NotFoundError, match=match):
        lm.take(request_id)


def test_model_hands_the_tokens_over_before_their_reader_has_them(lm):
    sender = lm.ask()
    lm.take()
    assert lm.go_on(sender) == [Spoken(coded_tokens(5, 3), last=False)]
    assert isinstance(lm.events[0], Spoken)
    assert lm.events.count("the reader has something") >= 2


def test_model_knows_no_stream_that_was_never_there_or_has_ended(lm):
    unknown(lm)
    sender = lm.ask()
    unknown(lm, "other")
    assert lm.listed == ["id"]
    lm.go_on(sender)
    unknown(lm)
    assert lm.listed == []


def test_stream_of_the_model_that_is_shorter_hands_over_all_as_the_last(lm):
    sender = lm.ask(tokens=2, first_tokens=3)
    lm.take()
    assert lm.go_on(sender) == [Spoken(coded_tokens(5, 2), last=True)]


def test_each_stream_of_the_model_has_its_own_first_tokens(lm):
    senders = [lm.ask(f"id {name}", name) for name in (3, 4)]
    for name in (4, 3):
        lm.take(f"id {name}")
    found = sorted(lm.go_on(*senders))
    assert found == [Spoken(coded_tokens(name, 3), last=False) for name in (3, 4)]


def test_second_request_with_an_id_in_use_leaves_the_first_its_tokens(lm):
    first = lm.ask(name=5)
    second = lm.ask(name=6)
    assert second.final.is_set()
    assert "a request with this id has not ended yet" in second.responses[0].error().message()
    lm.take()
    assert lm.go_on(first) == [Spoken(coded_tokens(5, 3), last=False)]


def test_id_can_be_used_again_once_its_stream_has_ended(lm, engine):
    lm.go_on(lm.ask(name=5))
    engine.gate = threading.Semaphore(0)
    sender = lm.ask(name=6)
    lm.take()
    assert lm.go_on(sender) == [Spoken(coded_tokens(6, 3), last=False)]


@pytest.mark.parametrize(
    ("request_id", "inputs"), [("", {}), ("id", {"streaming": False}), ("id", {"request_output_len": 0})]
)
def test_requests_that_are_no_stream_with_an_id_are_not_listed(lm, request_id, inputs):
    sender = lm.ask(request_id, **inputs)
    assert lm.listed == []
    unknown(lm, request_id)
    lm.go_on(sender)


def test_stream_that_is_stopped_hands_over_nothing(lm):
    sender = lm.ask()
    lm.take()
    assert lm.tell(stop=True).final.is_set()
    assert lm.go_on(sender) == [None]


@pytest.mark.parametrize("drawn", [False, True])
def test_stream_that_fails_hands_over_nothing_before_its_reader_knows(lm, engine, drawn):
    (engine.broken if drawn else engine.refused).add(5)
    sender = lm.ask()
    if drawn:
        lm.take()
        assert lm.go_on(sender) == [None]
        assert lm.events[0] is None
    else:
        lm.go_on(sender)
        unknown(lm)
    assert sender.responses[-1].error() is not None


def test_silence_that_the_reader_of_the_model_drops_is_not_handed_over(lm):
    lm.model.reader = dataclasses.replace(lm.model.reader, silent_tokens=frozenset(range(1, 9)))
    sender = lm.ask(name=0, tokens=20, first_tokens=8)
    lm.take()
    assert lm.go_on(sender) == [Spoken([0, 1, 2, 3, 4, 5, 9, 10], last=False)]


@pytest.mark.parametrize(("text", "heard"), [([1, 2], ([1, 2], True)), ([1, 2, 3, 4], ([1, 2, 3], False))])
def test_text_in_pieces_hands_over_its_first_tokens_too(lm, text, heard):
    sender = lm.ask(text_open=True, tokens=100)
    lm.take()
    for id_ in text:
        lm.tell(more_text=[id_])
    lm.tell(end_text=True)
    tokens, last = heard
    assert lm.go_on(sender) == [Spoken([5000 + id_ for id_ in tokens], last)]
