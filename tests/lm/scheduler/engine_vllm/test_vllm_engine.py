"""The engine ``vllm`` on an engine that takes only what vLLM's does."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from coded_utterances import GREEDY, coded
from coded_vllm import SPEECH_TOKENS, CodedModel
from engine_drivers import run, tokens

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm import FinishReason, Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.engine import prepare_engine
from cosyvoice_runtime.lm.engines.vllm.engine import VllmEngine
from cosyvoice_runtime.metrics.page import read_samples

STRATEGIES = ("greedy", "nucleus", "ras")


@pytest.fixture
def lengths() -> dict[int, int]:
    """Codes of each utterance; those not here never end."""
    return {}


@pytest.fixture
def open_engine(vllm, vllm_settings, lengths):
    """``open_engine(**settings)``; what its warm-up did is forgotten."""
    vllm.load_model = lambda directory: CodedModel(directory, lengths)

    def open_(**changes) -> VllmEngine:
        engine = prepare_engine(vllm_settings(**changes))()
        vllm.requests.clear()
        vllm.streams = 0
        return engine

    return open_


@pytest.fixture
def engine(open_engine) -> VllmEngine:
    return open_engine()


def test_tokens_stream_one_by_one_and_the_end_brings_none(engine, lengths):
    lengths[3] = 5
    handle = engine.add(Prompt([3]), GREEDY)
    rows = run(engine, {handle})[handle]
    assert [list(row.tokens) for row in rows] == [*([token] for token in coded(3, 5)), []]
    assert [row.finish_reason for row in rows] == [*[None] * 5, FinishReason.STOP]


def test_last_token_comes_with_the_reason_when_the_length_is_reached(engine, vllm):
    handle = engine.add(Prompt([3]), dataclasses.replace(GREEDY, max_tokens=4))
    rows = run(engine, {handle})[handle]
    assert tokens(rows) == coded(3, 4)
    assert (rows[-1].tokens, rows[-1].finish_reason) == ([303], FinishReason.LENGTH)
    assert (vllm.engines[-1].ids, vllm.aborted) == (set(), [])


@pytest.mark.parametrize("stop", [1, 2])
def test_other_stop_ids_end_the_speech_and_are_no_part_of_it(open_engine, vllm, stop):
    vllm.load_model = lambda directory: CodedModel(directory, {3: 5}, stop)
    engine = open_engine()
    handle = engine.add(Prompt([3]), GREEDY)
    rows = run(engine, {handle})[handle]
    assert (tokens(rows), rows[-1].finish_reason) == (coded(3, 5), FinishReason.STOP)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_utterances_keep_to_themselves_while_others_come_and_go(engine, lengths, strategy):
    """The batch is condensed and reordered all the time; eight utterances share four places."""
    lengths |= {name: 3 * name % 17 + 1 for name in range(1, 9)}
    options = SamplingOptions(strategy, min_tokens=0, max_tokens=60, seed=1)
    handles, waiting, spoken = {}, list(range(1, 9)), {}
    while waiting or handles:
        while waiting and len(handles) < engine.slots:
            name = waiting.pop(0)
            handles[engine.add(Prompt([name]), options)] = name
        for row in engine.step():
            spoken.setdefault(handles[row.handle], []).extend(row.tokens)
            if row.finish_reason is not None:
                del handles[row.handle]
    assert spoken == {name: coded(name, lengths[name]) for name in range(1, 9)}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_minimum_length_holds_back_all_three_stop_ids(engine, lengths, strategy):
    lengths[3] = 2
    handle = engine.add(Prompt([3]), SamplingOptions(strategy, top_k=1, min_tokens=4, max_tokens=6, seed=0))
    rows = run(engine, {handle})[handle]
    assert tokens(rows)[:2] == coded(3, 2)
    assert len(tokens(rows)) >= 4
    assert max(tokens(rows)) < SPEECH_TOKENS


def test_request_carries_all_that_its_draws_depend_on(engine, vllm):
    options = SamplingOptions("ras", 50, 0.9, 0.8, 1.1, seed=2**63 - 1, min_tokens=7, max_tokens=30)
    engine.add(Prompt([3], prompt_text=[8], prompt_speech=[0, 6560]), options)
    (request,) = vllm.requests
    carried = request.params.extra_args["cosyvoice2"]
    assert SamplingOptions(**carried["options"]) == options
    assert (carried["prompt_speech"], carried["limits"]) == ([0, 6560], [7, 30])
    assert json.loads(json.dumps(carried)) == carried
    assert (request.params.max_tokens, request.params.temperature) == (30, 0.0)
    assert request.params.stop_token_ids == [6561, 6562, 6563, 6564]
    assert len(request.embeds) == 6


def test_open_seed_is_drawn_afresh(engine, vllm):
    for _ in range(2):
        engine.add(Prompt([3]), GREEDY)
    first, second = (request.params.extra_args["cosyvoice2"]["options"]["seed"] for request in vllm.requests)
    assert first != second


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_empty_final_response_is_an_error_of_that_utterance_alone(engine, vllm, lengths, reason):
    lengths[2] = 3
    ended, other = engine.add(Prompt([1]), GREEDY), engine.add(Prompt([2]), GREEDY)
    engine.step()
    vllm.early_ends[str(ended)] = reason
    seen = run(engine, {ended, other})
    assert (seen[ended][-1].tokens, seen[ended][-1].finish_reason) == ([], FinishReason.ERROR)
    assert str(seen[ended][-1].error) == f"vLLM ended this utterance ({reason})"
    assert tokens(seen[other]) == coded(2, 3)[1:]


def test_broken_logits_end_that_utterance_alone(open_engine, vllm, lengths):
    lengths |= {1: 30, 2: 4}

    def load(directory):
        model = CodedModel(directory, lengths)

        def logits(embeds, ids):
            broken = model.name(embeds) == 1 and len(ids) == 2
            return model(embeds, ids) * (torch.nan if broken else 1.0)

        return logits

    vllm.load_model = load
    engine = open_engine()
    broken, other = engine.add(Prompt([1]), GREEDY), engine.add(Prompt([2]), GREEDY)
    seen = run(engine, {broken, other})
    assert tokens(seen[broken]) == coded(1, 2)
    assert seen[broken][-1].finish_reason is FinishReason.ERROR
    assert (
        str(seen[broken][-1].error)
        == "speech_lm: NaN or infinity in the logits; ./run.sh check names the layer"
    )
    assert (tokens(seen[other]), seen[other][-1].finish_reason) == (coded(2, 4), FinishReason.STOP)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_runaway_output_is_ended_and_its_request_too(open_engine, vllm, strategy):
    vllm.load_model = lambda directory: _stuck(CodedModel(directory, {}))
    engine = open_engine()
    options = SamplingOptions(strategy, min_tokens=0, max_tokens=90, runaway_span=20, tau=1.0, window=10_000)
    handle = engine.add(Prompt([3]), options)
    rows = run(engine, {handle})[handle]
    assert (tokens(rows), rows[-1].finish_reason) == ([300] * 20, FinishReason.REPETITION)
    assert (vllm.aborted, vllm.engines[-1].ids) == ([str(handle)], set())


def _stuck(model):
    return lambda embeds, ids: model(embeds, [])


def test_cancelled_utterance_brings_nothing_more_and_leaves_the_engine(engine, vllm, lengths):
    lengths[2] = 30
    gone, other = engine.add(Prompt([1]), GREEDY), engine.add(Prompt([2]), GREEDY)
    engine.step()
    engine.cancel(gone)
    assert vllm.engines[-1].ids == {str(other)}
    assert run(engine, {other}).keys() == {other}


def test_cancelled_before_its_first_step(engine, vllm, lengths):
    lengths[2] = 2
    gone = engine.add(Prompt([1]), GREEDY)
    engine.cancel(gone)
    other = engine.add(Prompt([2]), GREEDY)
    assert tokens(run(engine, {other})[other]) == coded(2, 2)


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        (Prompt([1024]), GREEDY, r"text: \[1024\] is not accepted; ids are 0 to 1023"),
        (Prompt([1], prompt_speech=[6561]), GREEDY, "prompt_speech: .* ids are 0 to 6560"),
        (Prompt([]), GREEDY, "at least one text token is needed"),
        (Prompt([1] * 254), GREEDY, "prompt: '256 positions' is not accepted; fewer than 256"),
        (Prompt([1] * 200), GREEDY, "max_tokens: 60 is not accepted; after this prompt there is room for 54"),
    ],
)
def test_what_does_not_fit_is_refused_before_it_reaches_vllm(engine, vllm, prompt, options, message):
    with pytest.raises(InvalidInput, match=message):
        engine.add(prompt, options)
    assert vllm.requests == []


def test_longest_prompt_that_fits_gets_its_one_token(engine):
    handle = engine.add(Prompt([1] * 253), SamplingOptions("greedy", min_tokens=0))
    (row,) = run(engine, {handle})[handle]
    assert (len(row.tokens), row.finish_reason) == (1, FinishReason.LENGTH)


def test_every_step_is_taken_on_vllm_s_own_stream(engine, vllm, lengths):
    lengths[3] = 5
    run(engine, {engine.add(Prompt([3]), GREEDY)})
    assert vllm.streams == 6


def test_engine_is_warm_when_it_opens(vllm, vllm_settings, lengths):
    """Prompt and a token after it, each of which vLLM compiles kernels for."""
    vllm.load_model = lambda directory: CodedModel(directory, lengths)
    prepare_engine(vllm_settings())()
    (request,) = vllm.requests
    assert len(request.output) == 2
    assert vllm.engines[-1].ids == set()


def test_close_shuts_vllm_down(engine, vllm):
    engine.add(Prompt([1]), GREEDY)
    engine.close()
    assert not vllm.engines[-1].alive


def test_statistics_are_metrics_and_return_to_zero(open_engine, lengths, tmp_path, monkeypatch):
    monkeypatch.setenv("SUPERVISOR_METRICS_DIR", str(tmp_path))
    lengths[3] = 5
    engine = open_engine()

    def found() -> dict:
        return {sample.name: sample.value for sample in read_samples(tmp_path)}

    warm_up = found()["cosyvoice_vllm_step_seconds_count"]
    handles = {engine.add(Prompt([3]), GREEDY), engine.add(Prompt([4]), GREEDY)}
    engine.step()
    assert found()["cosyvoice_vllm_active_requests"] == 2
    assert found()["cosyvoice_vllm_kv_cache_usage"] == 2 / 1000
    speaking, endless = sorted(handles)
    while all(row.handle != speaking or row.finish_reason is None for row in engine.step()):
        pass
    engine.cancel(endless)
    assert found()["cosyvoice_vllm_active_requests"] == 0
    assert found()["cosyvoice_vllm_step_seconds_count"] - warm_up == 6
