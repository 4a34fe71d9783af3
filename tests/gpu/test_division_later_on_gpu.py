"""Calls for few utterances in progress, captured by a thread of its own while others compute."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from test_token2wav_graphs import PAGES, ROWS, assert_equal
from test_workers_on_gpu import CHUNKS, FIRST, LATER, spoken_alone

from cosyvoice_runtime.engine.batches.router import Preparation
from cosyvoice_runtime.engine.runtimes.torch_runtime import open_runtime
from cosyvoice_runtime.gpu.partitions.partition import GpuParts, GpuPartsError, divide
from cosyvoice_runtime.settings import Machine, Token2WavSettings

PATIENCE_S = 120.0
COUNT = FIRST + (CHUNKS - 1) * LATER


@pytest.fixture(scope="module")
def parts() -> GpuParts:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    device = torch.device("cuda", 0)
    try:
        return dataclasses.replace(divide(device, 0.25), of_few=divide(device, 0.37, first_lanes=2))
    except GpuPartsError as error:
        pytest.skip(str(error))


@torch.inference_mode()
def test_what_is_spoken_meanwhile_and_after_is_the_same(checkpoint: Path, parts: GpuParts):
    settings = Token2WavSettings(
        checkpoint_dir=checkpoint, device="cuda", dtype="float32", max_batch=ROWS, max_flow_pages=PAGES
    )
    runtime = open_runtime(settings.resolved(Machine(cores=1, gpu=True)), parts)
    main, few = runtime.token2wav, [turns for turns in runtime.concurrent if turns.of_few]
    assert [turns.urgent for turns in few] == [False, True, True]
    ready: list[bool] = []
    preparation = Preparation([runtime.later], lambda: ready.append(True))
    with runtime.at_work():
        expected, meanwhile = spoken_alone(main, 3, COUNT), []
        preparation.start()
        while not ready and preparation._thread.is_alive():
            meanwhile.append(spoken_alone(main, 3, COUNT))
        preparation._thread.join(PATIENCE_S)
        assert ready
        assert len(meanwhile) > 1
        for wave in meanwhile:
            assert torch.equal(wave, expected)
        for turns in few:
            with turns.at_launch():
                assert_equal([spoken_alone(turns.token2wav, 3, COUNT)], [expected])
    assert main.flow.eager_calls == 0
