"""``token2wav`` with backend ``onnx`` on a real server: it speaks what the library speaks on PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from wave_client import Client, chunk_inputs, prompt_inputs, random_prompt, random_tokens, speak

from cosyvoice_runtime.engine.runtimes.torch_runtime import load_token2wav
from cosyvoice_runtime.onnx.wave_graphs import EstimatorFormats
from cosyvoice_runtime.settings import Machine, Token2WavSettings
from cosyvoice_runtime.supervisor import Server
from cosyvoice_runtime.token2wav.onnx.export import export_wave

MODEL = "token2wav"
TOLERANCE = 2e-3
"""Of the waveform, full scale 1: roundings of the mel differ, which the running phase adds up."""


@pytest.fixture(scope="module")
def server(serve, tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("networks")
    export_wave(tiny_checkpoint, directory, EstimatorFormats())
    with serve([MODEL], **{"token2wav.backend": "auto", "token2wav.backend_dir": directory}) as server:
        yield server


def test_utterances_side_by_side_are_the_librarys(server: Server, tiny_checkpoint: Path) -> None:
    settings = Token2WavSettings(checkpoint_dir=tiny_checkpoint, backend="torch", max_flow_pages=64)
    library = load_token2wav(settings.resolved(Machine(cores=1, gpu=False)))
    prompt = random_prompt(library.flow.flow.config, 40, seed=0)
    rows = [random_tokens(count, count) for count in (70, 31, 95)]
    with Client(server) as client:
        for row in rows:  # two of them are computed at a time, and each side needs the voice once
            opened = chunk_inputs(str(len(row)), [], 0, False) | prompt_inputs(prompt)
            client.call(MODEL, opened, "waveform")
        with ThreadPoolExecutor(len(rows)) as pool:
            waves = pool.map(lambda row: speak(client, str(len(row)), row, [28]), rows)
            for row, wave in zip(rows, waves, strict=True):
                state = library.open(prompt, noise_seed=7)
                library.push(state, row, last=True)
                [expected] = library.advance([state])
                library.close(state)
                np.testing.assert_allclose(wave, expected, atol=TOLERANCE, rtol=0)


def test_page_tells_what_runs(server: Server, metric) -> None:
    assert metric(server, "cosyvoice_token2wav_backend", backend="onnx") == 1
