"""Requests that ask what their tokens look at in the text, beside others that don't."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from coded_engine import CollectingReader

from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.engine import prepare_engine
from cosyvoice_runtime.lm.onnx.export import export_lm
from cosyvoice_runtime.lm.scheduler.request import Request
from cosyvoice_runtime.settings import Machine, TensorrtLlmSettings

LONG = SamplingOptions(seed=3, min_tokens=40, max_tokens=50)
ENDLESS = SamplingOptions(seed=3, min_tokens=10**4, max_tokens=10**4, runaway_span=0)
ASKED = Request(Prompt(range(5, 12)), LONG, streaming=True, first_tokens=13, group_tokens=25, with_rows=True)


@pytest.fixture(scope="module", params=["torch", "onnx"])
def settings(request, followed_checkpoint: Path, tmp_path_factory) -> TensorrtLlmSettings:
    directory = tmp_path_factory.mktemp("onnx") / "speech_lm"
    export_lm(followed_checkpoint, directory, "float32")
    return TensorrtLlmSettings(
        engine=request.param,
        engine_dir=directory,
        weight_format="float32",
        checkpoint_dir=followed_checkpoint,
        max_slots=3,
        max_tokens=10**4,
        max_sequence_tokens=10**4 + 64,
    ).resolved(Machine(cores=1, gpu=False))


def spoken(scheduler, *requests: Request) -> list[CollectingReader]:
    readers = [CollectingReader() for _ in requests]
    for request, reader in zip(requests, readers, strict=True):
        scheduler.submit(request, reader)
    return [reader.wait() for reader in readers]


def test_each_group_brings_a_row_for_each_token(settings, make_scheduler):
    other = replace(ASKED, prompt=Prompt([1], prompt_speech=[7, 0]), streaming=False)
    asked, silent, whole = spoken(
        make_scheduler(prepare_engine(settings)), ASKED, replace(ASKED, with_rows=False), other
    )
    assert asked.tokens == silent.tokens
    assert [rows.shape for rows in asked.rows] == [(len(group), 7) for group in asked.groups]
    assert len(asked.groups) > 2
    assert all(rows is None for rows in silent.rows)
    assert [rows.shape for rows in whole.rows] == [(len(whole.tokens), 1)]
    np.testing.assert_allclose(np.concatenate(asked.rows).sum(1), 1, atol=1e-5)


def test_engines_see_the_same(settings, make_scheduler):
    found = []
    for engine in ("torch", "onnx"):
        [reader] = spoken(make_scheduler(prepare_engine(settings.replace(engine=engine))), ASKED)
        found.append(np.concatenate(reader.rows))
    np.testing.assert_allclose(*found, atol=1e-5)


def test_stopped_request_leaves_nothing_to_the_next_one_of_its_slot(settings, make_scheduler):
    scheduler = make_scheduler(prepare_engine(settings.replace(max_slots=1)))
    [expected] = spoken(scheduler, ASKED)
    leaving = CollectingReader(leave_after=20)
    scheduler.submit(replace(ASKED, options=ENDLESS), leaving)
    leaving.wait()
    silent, again = spoken(scheduler, replace(ASKED, with_rows=False), ASKED)
    assert all(rows is None for rows in silent.rows)
    np.testing.assert_array_equal(np.concatenate(again.rows), np.concatenate(expected.rows))
