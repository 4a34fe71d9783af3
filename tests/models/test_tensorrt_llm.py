"""``tensorrt_llm`` on a real server, against the library's own generation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from token_stream import Answer, TokenStream
from tritonclient.utils import InferenceServerException

from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.merged_vocabulary import MergedVocabulary, tokenizer_length
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.torch.decoder import generate
from cosyvoice_runtime.lm.torch.network import SpeechLM
from cosyvoice_runtime.supervisor import Server

MOST_TOKENS = 20_000
LONG = {
    "request_output_len": MOST_TOKENS,
    "min_tokens": MOST_TOKENS,
    "streaming": True,
    "runtime_top_k": 50,
}
"""Inputs of a request that outlasts every test unless it is stopped."""
LIMITS = {"max_tokens": MOST_TOKENS, "max_sequence_tokens": MOST_TOKENS + 400}
ACTIVE, WAITING = "cosyvoice_lm_active_slots", "cosyvoice_lm_waiting_requests"
FINISHED = "cosyvoice_lm_finished_total"
TOKENS = "cosyvoice_lm_tokens_total"

OpenStream = Callable[..., TokenStream]


@pytest.fixture(scope="module")
def server(serve) -> Iterator[Server]:
    with serve(["tensorrt_llm"], max_queue_size=64, **LIMITS) as server:
        yield server


@pytest.fixture(scope="module")
def narrow_server(serve) -> Iterator[Server]:
    """One slot, room for two more requests."""
    with serve(["tensorrt_llm"], max_slots=1, max_queue_size=2, **LIMITS) as server:
        yield server


@pytest.fixture
def stream(server) -> Iterator[OpenStream]:
    """``stream(ids, request_id, server, **inputs)`` starts a request that is closed after the test."""
    streams: list[TokenStream] = []

    def start(ids, request_id="", server=server, **inputs) -> TokenStream:
        streams.append(TokenStream(server, ids, request_id, **inputs))
        return streams[-1]

    yield start
    for started in streams:
        started.close()


@pytest.fixture(scope="module")
def lm(tiny_checkpoint: Path) -> SpeechLM:
    config = load_config(tiny_checkpoint)
    return SpeechLM.from_tensors(config.speech_lm, load_tensors(Layout(tiny_checkpoint), "llm", config))


@pytest.fixture(scope="module")
def vocabulary(tiny_checkpoint: Path, lm: SpeechLM) -> MergedVocabulary:
    return MergedVocabulary(tokenizer_length(Layout(tiny_checkpoint)), lm.config.speech_rows)


@pytest.fixture(scope="module")
def merge(vocabulary: MergedVocabulary) -> Callable[[Prompt], list[int]]:
    """The ids of a prompt."""

    def merge(prompt: Prompt) -> list[int]:
        text = [*prompt.prompt_text, *prompt.text]
        speech = [vocabulary.speech_offset + token for token in prompt.prompt_speech]
        return [vocabulary.sos_id, *text, vocabulary.task_id, *speech]

    return merge


@pytest.fixture(scope="module")
def expect(lm: SpeechLM, vocabulary: MergedVocabulary) -> Callable[..., list[int]]:
    """The ids that the library generates."""

    def expect(prompt: Prompt, **options) -> list[int]:
        return [
            vocabulary.speech_offset + token for token in generate(lm, prompt, SamplingOptions(**options))[0]
        ]

    return expect


PROMPT = Prompt(text=range(5, 12), prompt_text=[1, 2, 3], prompt_speech=[7, 0, 6560, 41])


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(
    ("inputs", "options"),
    [
        ({}, {"strategy": "greedy", "top_k": 0, "top_p": 1.0}),
        (
            {"runtime_top_k": 50, "runtime_top_p": 0.95, "temperature": 0.8, "repetition_penalty": 1.1},
            {
                "strategy": "nucleus",
                "top_k": 50,
                "top_p": 0.95,
                "temperature": 0.8,
                "repetition_penalty": 1.1,
            },
        ),
        (
            {"sampling_strategy": "ras", "ras_window": 12, "ras_threshold": 0.2},
            {"strategy": "ras", "window": 12, "tau": 0.2},
        ),
    ],
)
def test_answer_equals_the_librarys_generation(stream, merge, expect, streaming, inputs, options):
    lengths = {"request_output_len": 90, "min_tokens": 30, "seed": 11}
    answer = stream(
        merge(PROMPT), **inputs, **lengths, streaming=streaming, exclude_input_in_output=True
    ).read()
    # The tensors have single precision, and the library computes with what they hold.
    options = {name: float(np.float32(x)) if isinstance(x, float) else x for name, x in options.items()}
    assert answer.ids == expect(PROMPT, **options, max_tokens=90, min_tokens=30, seed=11)
    assert answer.finish_reasons[-1] in ("stop", "length", "repetition")
    assert set(answer.finish_reasons[:-1]) <= {""}
    assert streaming or len(answer.groups) == 1


def test_first_tokens_come_while_the_rest_is_being_made(stream, merge):
    running = stream(merge(PROMPT), "long", **LONG)
    running.wait()
    assert running.answer.finish_reasons == [""]
    assert 0 < len(running.answer.ids) < MOST_TOKENS
    stream([], "long", stop=True).read()
    assert running.read().finish_reasons[-1] == "cancelled"


def test_tokens_come_in_the_groups_that_were_asked_for(stream, merge):
    lengths = {"request_output_len": 90, "min_tokens": 90, "streaming": True}
    grown = stream(merge(PROMPT), **lengths).read()
    asked = stream(merge(PROMPT), **lengths, first_tokens=13, group_tokens=25).read()
    assert asked.ids == grown.ids
    assert asked.groups[0] >= 13
    assert len(asked.groups) <= 1 + (90 - 13) // 25 + 1 < len(grown.groups)


def test_answer_that_is_not_streamed_starts_with_the_input_as_nvidias_does(stream, merge):
    ids = merge(PROMPT)
    assert stream(ids, request_output_len=5, min_tokens=5).read().ids[: len(ids)] == ids


def test_sixteen_requests_at_a_time_equal_single_runs(server, merge):
    def ask(index: int) -> Answer:
        prompt = Prompt(range(1, 4 + index), prompt_speech=range(10 * index))
        inputs = {"request_output_len": 60 + 5 * index, "min_tokens": 20, "seed": index, "streaming": True}
        inputs |= {"sampling_strategy": "ras"} if index % 2 else {"runtime_top_p": 0.9, "temperature": 1.2}
        stream = TokenStream(server, merge(prompt), **inputs)
        try:
            return stream.read()
        finally:
            stream.close()

    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(ask, range(16)))
    for index, answer in enumerate(together):
        single = ask(index)
        assert answer.ids == single.ids
        assert answer.finish_reasons[-1] == single.finish_reasons[-1]


def cancelled_since(server, metric, before: float) -> bool:
    """Metrics follow a moment later, so that what ended before this test may be counted in it, too."""
    return metric(server, FINISHED, reason="cancelled") > before and metric(server, ACTIVE) == 0


def test_stop_frees_the_slot_and_ends_the_stream_with_what_was_said(
    stream, server, merge, expect, metric, eventually
):
    before = metric(server, FINISHED, reason="cancelled")
    running = stream(merge(PROMPT), "to stop", **LONG, seed=5)
    running.wait()
    assert stream([], "to stop", stop=True).read().ids == []
    answer = running.read()
    assert answer.finish_reasons[-1] == "cancelled"
    said = len(answer.ids)
    assert said < MOST_TOKENS
    options = {"strategy": "nucleus", "top_k": 50, "top_p": 1.0, "seed": 5}
    assert answer.ids == expect(PROMPT, **options, min_tokens=said, max_tokens=said)
    eventually(lambda: cancelled_since(server, metric, before))


def test_client_that_drops_its_stream_frees_the_slot(stream, server, merge, metric, eventually):
    before = metric(server, FINISHED, reason="cancelled")
    running = stream(merge(PROMPT), **LONG)
    running.wait()
    eventually(lambda: metric(server, ACTIVE) == 1)
    running.close()
    eventually(lambda: cancelled_since(server, metric, before))


def test_client_that_drops_a_request_without_streaming_frees_the_slot(
    stream, server, merge, metric, eventually
):
    before = metric(server, FINISHED, reason="cancelled")
    running = stream(merge(PROMPT), **LONG | {"streaming": False})
    eventually(lambda: metric(server, ACTIVE) == 1)
    running.close()
    eventually(lambda: cancelled_since(server, metric, before))


def test_tokens_are_counted_while_a_stream_runs(stream, server, merge, metric, eventually):
    before = metric(server, TOKENS)
    running = stream(merge(PROMPT), **LONG)
    eventually(lambda: metric(server, TOKENS) > before + 20 and metric(server, ACTIVE) == 1)
    running.close()
    eventually(lambda: metric(server, ACTIVE) == 0)


def test_load_returns_to_zero(stream, server, merge, metric, eventually):
    before = metric(server, FINISHED)
    streams = [
        stream(merge(PROMPT), request_output_len=10, streaming=True, runtime_top_k=9) for _ in range(20)
    ]
    for started in streams:
        started.read()
    eventually(lambda: metric(server, FINISHED) >= before + 20)
    for gauge in (ACTIVE, WAITING, "cosyvoice_lm_tokens_per_step"):
        eventually(lambda gauge=gauge: metric(server, gauge) == 0)
    eventually(lambda: not any(server.inflight().values()))


@pytest.mark.parametrize(
    ("ids", "inputs", "message"),
    [
        ([1, 2], {}, "input_ids: [1] is not accepted; the first id is sos, {sos}"),
        (
            ["sos", 1],
            {},
            "input_ids: '2 ids without task_id' is not accepted; the text ends with task_id, {task}",
        ),
        (["sos", "task"], {}, "at least one text id stands between sos and task_id"),
        (["sos", 99999, "task"], {}, "input_ids: '99999 at position 1' is not accepted; text ids are 0 to"),
        (["sos", 1, "task", 3], {}, "input_ids: '3 at position 3' is not accepted; prompt speech ids are"),
        (["sos", 1, "task"], {"input_ids": None}, "input_ids: None is not accepted; this input is required"),
        (["sos", 1, "task"], {"input_lengths": 4}, "input_lengths: 4 is not accepted; from 1 to the 3 ids"),
        (
            ["sos", 1, "task"],
            {"request_output_len": 0},
            "request_output_len: 0 is not accepted; from 1 to 20000",
        ),
        (["sos", 1, "task"], {"runtime_top_p": 2.0}, "runtime_top_p: 2.0 is not accepted; a number from"),
        (
            ["sos", 1, "task"],
            {"temperature": 0.0},
            "temperature: 0.0 is not accepted; a number from 0.01 to 100",
        ),
        (["sos", 1, "task"], {"end_id": 3}, "end_id: 3 is not accepted; one of the stop ids"),
        (
            ["sos", 1, "task"],
            {"sampling_strategy": "beam"},
            "sampling_strategy: 'beam' is not accepted; one of",
        ),
        (["sos", 1, "task"], {"stop": True}, "request_id: '' is not accepted; the id of the request to stop"),
    ],
)
def test_bad_input_is_refused_by_name_value_and_limit(stream, vocabulary, ids, inputs, message):
    control = {"sos": vocabulary.sos_id, "task": vocabulary.task_id}
    with pytest.raises(InferenceServerException) as raised:
        stream([control.get(id_, id_) for id_ in ids], **inputs).read()
    text = raised.value.message()
    assert message.format(**control) in text
    assert "Traceback" not in text
    assert ".py" not in text


def test_full_queue_is_unavailable_and_serves_what_it_holds(stream, narrow_server, merge, metric, eventually):
    running = stream(merge(PROMPT), "running", narrow_server, **LONG)
    running.wait()
    short = {"request_output_len": 5, "min_tokens": 5, "runtime_top_k": 5, "streaming": True}
    waiting = [stream(merge(PROMPT), "", narrow_server, **short, seed=seed) for seed in range(2)]
    eventually(lambda: metric(narrow_server, WAITING) == 2)
    with pytest.raises(InferenceServerException, match="max_queue_size: 1 requests run and 2 wait") as raised:
        stream(merge(PROMPT), "", narrow_server, **short).read()
    assert "try again later" in raised.value.message()
    stream([], "running", narrow_server, stop=True).read()
    assert running.read().finish_reasons[-1] == "cancelled"
    assert [len(started.read().ids) for started in waiting] == [5, 5]


def test_id_in_use_is_refused(stream, merge):
    running = stream(merge(PROMPT), "twice", **LONG)
    running.wait()
    with pytest.raises(InferenceServerException, match="request_id: 'twice' is not accepted; a request with"):
        stream(merge(PROMPT), "twice").read()
    stream([], "twice", stop=True).read()
    assert running.read().finish_reasons[-1] == "cancelled"
