"""Requests whose text comes while they run, through a scheduler whose engine tells whose tokens are whose."""

from __future__ import annotations

import threading

import pytest
from coded_engine import (
    SPAN,
    TIMEOUT_S,
    CodedEngine,
    CollectingReader,
    coded_request,
    coded_tokens,
    open_request,
)

from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.merged_vocabulary import MergedVocabulary
from cosyvoice_runtime.errors import InvalidInput, NotFoundError, WithdrawnError, status_of
from cosyvoice_runtime.lm import FinishReason, Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.engine import ENGINES, prepare_engine
from cosyvoice_runtime.lm.scheduler import job as job_module
from cosyvoice_runtime.lm.scheduler.job import TextInbox
from cosyvoice_runtime.lm.scheduler.request import Request, RequestReader, read_text
from cosyvoice_runtime.lm.scheduler.scheduler import Scheduler
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder
from cosyvoice_runtime.lm.torch.network import SpeechLM
from cosyvoice_runtime.settings import Machine, TensorrtLlmSettings
from cosyvoice_runtime.settings.tensorrt_llm import TAKE_OPEN_TEXT
from eventually import eventually

VOCABULARY = MergedVocabulary(100, 6564)


def submit_open(scheduler: Scheduler, name: int, request_id: str, **reader) -> CollectingReader:
    recorder = CollectingReader(**reader)
    scheduler.submit(open_request(name, request_id), recorder)
    return recorder


def test_text_that_comes_in_pieces_is_spoken_in_order_and_to_its_end(scheduler):
    reader = submit_open(scheduler, 1, "a")
    scheduler.push_text("a", [1, 2, 3], False)
    eventually(lambda: len(reader.tokens) == 3)
    scheduler.push_text("a", [4], False)
    scheduler.push_text("a", [5, 6], True)
    assert reader.wait().tokens == [SPAN + id_ for id_ in range(1, 7)]
    assert reader.reason is FinishReason.STOP
    assert reader.ends == [None]


def test_reader_gets_every_token_when_the_text_runs_out(scheduler):
    """Also those that are fewer than a group."""
    reader = submit_open(scheduler, 1, "a")
    scheduler.push_text("a", range(30), False)
    eventually(lambda: len(reader.tokens) == 30)
    scheduler.stop("a")
    assert reader.wait().reason is FinishReason.CANCELLED


def test_sequence_that_waits_for_text_costs_no_step_and_holds_up_nobody(scheduler, engine):
    waiting = submit_open(scheduler, 1, "a")
    neighbour = CollectingReader()
    scheduler.submit(coded_request(2, 20), neighbour)
    assert neighbour.wait().tokens == coded_tokens(2, 20)
    steps = len(engine.steps)
    eventually(lambda: scheduler.load.active == 1)
    assert len(engine.steps) == steps
    assert not any(1 in names for names in engine.steps)
    scheduler.push_text("a", [7], True)
    assert waiting.wait().tokens == [SPAN + 7]


def test_request_that_waits_for_a_slot_keeps_its_text(make_scheduler):
    engine = CodedEngine(slots=1)
    scheduler = make_scheduler(lambda: engine)
    first, second = submit_open(scheduler, 1, "a"), submit_open(scheduler, 2, "b")
    scheduler.push_text("b", [1, 2], False)
    scheduler.push_text("b", [3], True)
    scheduler.push_text("a", [9], True)
    assert first.wait().tokens == [SPAN + 9]
    assert second.wait().tokens == [2 * SPAN + id_ for id_ in (1, 2, 3)]


def test_stop_frees_the_slot_of_a_sequence_that_waits(make_scheduler):
    engine = CodedEngine(slots=1)
    scheduler = make_scheduler(lambda: engine)
    waiting, neighbour = submit_open(scheduler, 1, "a"), CollectingReader()
    eventually(lambda: scheduler.load.active == 1)
    scheduler.submit(coded_request(2, 3), neighbour)
    scheduler.stop("a")
    assert waiting.wait().reason is FinishReason.CANCELLED
    assert neighbour.wait().tokens == coded_tokens(2, 3)


def test_request_that_gets_no_text_is_ended_and_its_slot_is_free(make_scheduler):
    engine = CodedEngine(slots=1)
    scheduler = make_scheduler(lambda: engine, text_timeout_s=0.05)
    reader, neighbour = submit_open(scheduler, 1, "a"), CollectingReader()
    scheduler.push_text("a", [1], False)
    [error] = reader.wait().ends
    assert isinstance(error, WithdrawnError)
    assert (str(error), status_of(error)) == ("no text came for 0.05 s", "CANCELLED")
    scheduler.submit(coded_request(2, 3), neighbour)
    assert neighbour.wait().tokens == coded_tokens(2, 3)


def test_reader_that_leaves_while_its_request_waits_frees_the_slot(scheduler):
    reader = submit_open(scheduler, 1, "a")
    eventually(lambda: scheduler.load.active == 1)
    reader.gone = True
    reader.wait()
    eventually(lambda: scheduler.load.active == 0)


def test_further_text_for_what_has_ended_or_never_was_is_not_found(scheduler):
    reader = submit_open(scheduler, 1, "a")
    scheduler.push_text("a", [1], True)
    reader.wait()
    whole = CollectingReader()
    scheduler.submit(coded_request(2, 10**6, "whole"), whole)
    for request_id in ("a", "never", "", "whole"):
        with pytest.raises(
            NotFoundError, match=f"request_id: '{request_id}' is unknown; the request has ended"
        ):
            scheduler.push_text(request_id, [1], False)
    scheduler.stop("whole")
    whole.wait()


def test_further_text_for_what_ended_before_its_text_is_taken_and_goes_nowhere(make_scheduler):
    """Whoever sent it could not know yet."""
    scheduler = make_scheduler(lambda: CodedEngine(slots=1), text_timeout_s=0.05)
    reader = submit_open(scheduler, 1, "a")
    reader.wait()
    scheduler.push_text("a", [1], False)
    scheduler.push_text("a", [2], True)
    with pytest.raises(InvalidInput, match="the text of this request is complete"):
        scheduler.push_text("a", [3], False)
    with scheduler._changed:  # its text is there before it is missed
        again = submit_open(scheduler, 1, "a")
        scheduler.push_text("a", [4], True)
    assert again.wait().tokens == [SPAN + 4]
    with pytest.raises(NotFoundError, match="'a' is unknown; the request has ended"):
        scheduler.push_text("a", [5], False)
    assert reader.tokens == []


def test_only_so_many_that_ended_before_their_text_are_known(make_scheduler, monkeypatch):
    monkeypatch.setattr(job_module, "MOST_LATE", 2)
    scheduler = make_scheduler(lambda: CodedEngine(slots=1), text_timeout_s=0.05)
    for name in ("a", "b", "c"):
        submit_open(scheduler, 1, name).wait()
    for name in ("b", "c"):
        scheduler.push_text(name, [1], False)
    with pytest.raises(NotFoundError):
        scheduler.push_text("a", [1], False)


def test_text_after_its_end_too_much_of_it_and_an_end_without_any_are_refused(scheduler, engine):
    engine.gate = threading.Semaphore(0)
    reader = submit_open(scheduler, 1, "a")
    with pytest.raises(InvalidInput, match="end_text: True is not accepted; at least one"):
        scheduler.push_text("a", [], True)
    with pytest.raises(InvalidInput, match="more_text: '101 ids' is not accepted; at most 100"):
        scheduler.push_text("a", range(101), False)
    scheduler.push_text("a", [1], True)
    with pytest.raises(InvalidInput, match="more_text: '1 ids' is not accepted; the text of this request is"):
        scheduler.push_text("a", [2], False)
    gate, engine.gate = engine.gate, None
    gate.release()
    assert reader.wait().tokens == [SPAN + 1]


def test_scheduler_that_closes_lets_an_open_request_come_to_its_end(engine):
    scheduler = Scheduler(lambda: engine, 10, lambda load: None)
    reader = submit_open(scheduler, 1, "a")
    closing = threading.Thread(target=scheduler.close)
    closing.start()
    scheduler.push_text("a", [1, 2], False)
    scheduler.push_text("a", [3], True)
    closing.join(TIMEOUT_S)
    assert reader.wait().tokens == [SPAN + 1, SPAN + 2, SPAN + 3]
    assert engine.closed == 1


def test_engine_that_breaks_down_ends_those_that_wait_for_text(make_scheduler):
    engines = [CodedEngine(), CodedEngine()]
    scheduler = make_scheduler(iter(engines).__next__)
    waiting = submit_open(scheduler, 1, "a")
    eventually(lambda: scheduler.load.active == 1)
    engines[0].failure = RuntimeError("no memory")
    scheduler.submit(coded_request(2, 3), CollectingReader())
    assert "broke down" in str(waiting.wait().ends[0])
    later = submit_open(scheduler, 3, "a")
    scheduler.push_text("a", [1], True)
    assert later.wait().tokens == [3 * SPAN + 1]


@pytest.fixture(scope="module", params=TAKE_OPEN_TEXT)
def own_settings(request, tiny_checkpoint, onnx_export) -> TensorrtLlmSettings:
    """Of each engine of the library's own, with weights in float32."""
    return TensorrtLlmSettings(
        engine=request.param,
        engine_dir=onnx_export,
        weight_format="float32",
        checkpoint_dir=tiny_checkpoint,
        max_slots=2,
        max_tokens=200,
        max_sequence_tokens=400,
    ).resolved(Machine(cores=1, gpu=False))


def test_own_engines_speak_as_the_library_does(own_settings, make_scheduler, tiny_checkpoint):
    open_engine = prepare_engine(own_settings)
    scheduler = make_scheduler(open_engine)
    prompt = Prompt((), prompt_text=[3, 4, 5], prompt_speech=range(20))
    options = SamplingOptions(seed=7, ceiling=150)
    reader = CollectingReader()
    scheduler.submit(Request(prompt, options, True, id="a", text_room=100), reader)
    text = list(range(5, 28))
    for start in range(0, len(text), 7):
        scheduler.push_text("a", text[start : start + 7], start + 7 >= len(text))
    reader.wait()
    config = load_config(tiny_checkpoint)
    tensors = load_tensors(Layout(tiny_checkpoint), "llm", config)
    decoder = BatchDecoder(SpeechLM.from_tensors(config.speech_lm, tensors), slots=2, max_len=400)
    expected = decoder.add_open(prompt, options)
    decoder.push_text(expected, text)
    decoder.end_text(expected)
    while expected.finish_reason is None:
        decoder.step()
    assert (reader.tokens, reader.reason) == (expected.tokens, expected.finish_reason)
    assert config.speech_lm.interleaves_text


OPEN = {"text_open": True, "request_output_len": 50}
OPENING = [VOCABULARY.sos_id, VOCABULARY.task_id]


def test_opening_holds_the_prompt_alone():
    reader = RequestReader(VOCABULARY, 100, 1000)
    speech = VOCABULARY.speech_offset
    ids = [VOCABULARY.sos_id, 4, 5, VOCABULARY.task_id, speech + 9]
    request = reader.read(ids, OPEN, "a")
    assert request.prompt == Prompt((), prompt_text=(4, 5), prompt_speech=(9,))
    assert (request.options.max_tokens, request.options.min_tokens, request.options.ceiling) == (
        None,
        None,
        50,
    )
    assert request.text_room == 995
    assert reader.read(OPENING, OPEN, "a").prompt == Prompt(())


@pytest.mark.parametrize("engine", sorted(ENGINES.keys() - set(TAKE_OPEN_TEXT)))
def test_engines_that_take_text_whole_refuse_it_in_pieces(engine):
    whole = f"engine {engine} takes the text of a request whole"
    message = f"text_open: True is not accepted; {whole}; torch and onnx take it in pieces"
    with pytest.raises(InvalidInput, match=message):
        RequestReader(VOCABULARY, 100, 1000, engine).read(OPENING, OPEN, "a")


def test_opening_needs_an_id():
    with pytest.raises(InvalidInput, match="request_id: '' is not accepted; the id that further"):
        RequestReader(VOCABULARY, 100, 1000).read(OPENING, OPEN)


def test_id_that_is_not_one_of_text_is_named():
    assert read_text([0, 99], VOCABULARY) == [0, 99]
    with pytest.raises(InvalidInput, match=r"more_text: '100 at position 1' .* text ids are 0 to 99"):
        read_text([5, 100], VOCABULARY)


def test_text_may_fill_its_room_and_no_more():
    text = TextInbox(room=3)
    text.put([1, 2], ended=False)
    text.put([3], ended=False)
    with pytest.raises(InvalidInput, match="at most 3"):
        text.put([4], ended=False)
    assert (text.take(), text.is_complete) == ([1, 2, 3], False)
