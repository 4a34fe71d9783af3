"""A request beside a stream, to another model of the same process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from asked_models import (
    LM,
    ORDERS,
    UNKNOWN_VOICE,
    WAVE,
    Events,
    TwoModels,
    alone,
    answer_in,
    apart,
    asked,
    both,
    in_order,
    opened,
    run,
)

from cosyvoice_runtime.errors import (
    InvalidInput,
    StageError,
)
from cosyvoice_runtime.serving.triton.schema import TENSORRT_LLM, TOKEN2WAV
from cosyvoice_runtime.serving.triton.stage_calls import StageCalls, StageWay


@pytest.mark.parametrize("order", ORDERS)
def test_second_request_follows_the_first_and_its_answer_is_told_beside_the_stream(host, order):
    async def use(calls: StageCalls) -> list[Any]:
        events = Events(calls)
        lm, wave = await asked(host)
        assert lm.names == set(LM)
        assert wave.names == set(WAVE)
        answer_in(order, lm, partial(wave.make, 0.5, 0.25))
        await events.reading
        return events

    assert run(host, use) == in_order(order, ("wave", [[0.5, 0.25]]))


@pytest.mark.parametrize("order", ORDERS)
def test_error_of_the_second_request_is_told_and_ends_no_stream(host, order):
    async def use(calls: StageCalls) -> list[Any]:
        events = Events(calls)
        lm, wave = await asked(host)
        answer_in(order, lm, partial(wave.fail, UNKNOWN_VOICE))
        await events.reading
        return events

    events = run(host, use)
    [error] = [event for event in events if isinstance(event, StageError)]
    assert (error.status, str(error)) == ("NOT_FOUND", "voice_key: 'v' is unknown; send it")
    assert events == in_order(order, error)


def test_second_request_to_a_model_that_is_not_there_is_refused_alone(tmp_path):
    models = TwoModels(tmp_path / "networks", ["tensorrt_llm"])

    async def use(calls: StageCalls) -> list[Any]:
        events = Events(calls)
        answer_in("12.", await models.next(), lambda: None)
        await events.reading
        return events

    try:
        events = run(models, use)
    finally:
        models.host.close()
    [error] = [event for event in events if isinstance(event, StageError)]
    assert (error.status, str(error)) == (
        "NOT_FOUND",
        "model: 'token2wav' is unknown; tensorrt_llm answer here",
    )
    assert [event for event in events if event is not error] == [1, 2]


@pytest.mark.parametrize("order", ["", "w", "1w", "1"])
def test_error_of_the_first_request_ends_the_stream(host, order):
    async def use(calls: StageCalls) -> list[Any]:
        events = Events(calls)
        lm, wave = await asked(host)
        answer_in(order, lm, lambda: wave.make(0.5))
        lm.finish(InvalidInput("input_ids", 13, "a lucky number is expected"))
        with pytest.raises(StageError, match="input_ids: 13 is not accepted; a lucky number") as caught:
            await events.reading
        assert caught.value.status == "INVALID_ARGUMENT"
        if "w" not in order:
            while not wave.cancelled:
                await asyncio.sleep(0.005)
            wave.make(0.5)  # to nobody
        again = Events(calls)
        lm, wave = await asked(host)
        answer_in("12w.", lm, partial(wave.make, 0.25))
        await again.reading
        assert again == [1, 2, ("wave", [[0.25]])]
        return events

    assert run(host, use) == in_order(order, ("wave", [[0.5]]))


def test_connection_is_used_again_whoever_answered_last(host, connections):
    async def use(calls: StageCalls) -> None:
        for order in [*ORDERS, *ORDERS]:
            events = Events(calls)
            lm, wave = await asked(host)
            answer_in(order, lm, partial(wave.make, 1.0))
            await events.reading
            assert events == in_order(order, ("wave", [[1.0]]))

    run(host, use)
    assert len(connections) == 1


def test_further_requests_follow_the_second_one(host):
    async def further() -> AsyncIterator[dict[str, Any]]:
        yield {"more_text": [3]}
        yield {"more_text": [4, 5]}

    async def use(calls: StageCalls) -> list[Any]:
        events = Events(calls, further=further())
        lm, wave = await asked(host)
        for text in ([3], [4, 5]):
            more = await host.next()
            assert (more.model, more.id) == ("tensorrt_llm", "id")
            assert more.inputs.array("more_text").tolist() == text
            more.finish()
        answer_in("1w2.", lm, partial(wave.make, 0.5))
        await events.reading
        return events

    assert run(host, use) == [1, ("wave", [[0.5]]), 2]


def test_stream_that_is_left_early_cancels_both_requests(host):
    async def use(calls: StageCalls) -> list[Any]:
        events = Events(calls)
        lm, wave = await asked(host)
        events.reading.cancel()
        await asyncio.wait([events.reading])
        while not (lm.cancelled and wave.cancelled):
            await asyncio.sleep(0.005)
        return events

    assert run(host, use) == []


def test_only_models_of_one_process_are_side_by_side(host):
    async def use(ways: Callable[[Path], dict[str, StageWay]]) -> bool:
        async with opened(host, ways) as calls:
            return calls.side_by_side(TENSORRT_LLM, TOKEN2WAV)

    assert [asyncio.run(use(ways)) for ways in (both, alone, apart)] == [True, False, False]
