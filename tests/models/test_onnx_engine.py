"""An engine on ONNX Runtime in a real server draws and speaks what the library does on PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from speaking import FEW_STEPS
from token_stream import TokenStream
from wave_client import Client, chunk_inputs, prompt_inputs, random_prompt, random_tokens, speak

from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.merged_vocabulary import MergedVocabulary
from cosyvoice_runtime.engine.runtimes.torch_runtime import load_token2wav
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.onnx.export import export_lm
from cosyvoice_runtime.lm.torch.decoder import generate
from cosyvoice_runtime.lm.torch.network import SpeechLM
from cosyvoice_runtime.onnx.session import EstimatorFormats
from cosyvoice_runtime.settings import Machine, Token2WavSettings
from cosyvoice_runtime.supervisor import Server
from cosyvoice_runtime.token2wav.onnx_export import export_wave

TOLERANCE = 2e-3
"""Of the waveform, full scale 1: roundings of the mel differ, which the running phase adds up."""
MOST_TOKENS = 20_000
"""More than a tiny network makes before a client has asked to stop."""
PROMPTS = [Prompt(range(5, 12)), Prompt([1]), Prompt([9, 8], prompt_text=[4], prompt_speech=[7, 0, 6560])]


@pytest.fixture(scope="module")
def server(serve, tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Three slots, weights in float32."""
    directory = tmp_path_factory.mktemp("onnx")
    export_lm(tiny_checkpoint, directory / "speech_lm", "float32")
    export_wave(tiny_checkpoint, directory / "networks", EstimatorFormats())
    texts = {
        "tensorrt_llm.engine": "auto",
        "tensorrt_llm.engine_dir": directory / "speech_lm",
        "tensorrt_llm.weight_format": "float32",
        "tensorrt_llm.max_slots": 3,
        "tensorrt_llm.max_tokens": MOST_TOKENS,
        "tensorrt_llm.max_sequence_tokens": MOST_TOKENS + 400,
        "token2wav.backend": "auto",
        "token2wav.backend_dir": directory / "networks",
    }
    with serve(["tensorrt_llm", "token2wav"], **texts) as server:
        yield server


@pytest.fixture(scope="module")
def vocabulary(tiny_checkpoint: Path) -> MergedVocabulary:
    return MergedVocabulary.of(Layout(tiny_checkpoint), load_config(tiny_checkpoint).speech_lm)


def ids_of(prompt: Prompt, vocabulary: MergedVocabulary) -> list[int]:
    speech = [vocabulary.speech_offset + token for token in prompt.prompt_speech]
    return [vocabulary.sos_id, *prompt.all_text, vocabulary.task_id, *speech]


def test_requests_side_by_side_draw_the_librarys_tokens(server, tiny_checkpoint, vocabulary):
    config = load_config(tiny_checkpoint)
    tensors = load_tensors(Layout(tiny_checkpoint), "llm", config)
    lm = SpeechLM.from_tensors(config.speech_lm, tensors)
    inputs = {"request_output_len": 40, "min_tokens": 10, "sampling_strategy": "ras", "streaming": True}
    streams = [
        TokenStream(server, ids_of(prompt, vocabulary), seed=seed, **inputs)
        for seed, prompt in enumerate(PROMPTS)
    ]
    for seed, (prompt, stream) in enumerate(zip(PROMPTS, streams, strict=True)):
        options = SamplingOptions(seed=seed, min_tokens=10, max_tokens=40)
        expected = [vocabulary.speech_offset + token for token in generate(lm, prompt, options)[0]]
        assert stream.read().ids == expected
        stream.close()


def test_stopped_request_frees_its_slot(server, vocabulary, metric, eventually):
    long = {"request_output_len": MOST_TOKENS, "min_tokens": MOST_TOKENS, "streaming": True}
    running = TokenStream(server, ids_of(PROMPTS[0], vocabulary), "long", runtime_top_k=50, **long)
    assert not running.wait()
    TokenStream(server, [0], "long", stop=True).read()
    assert running.read().finish_reasons[-1] == "cancelled"
    eventually(lambda: metric(server, "cosyvoice_lm_finished_total", reason="cancelled") == 1)
    eventually(lambda: metric(server, "cosyvoice_lm_active_slots") == 0)
    running.close()


def test_utterances_side_by_side_are_the_librarys(server, tiny_checkpoint):
    settings = Token2WavSettings(
        checkpoint_dir=tiny_checkpoint, backend="torch", max_flow_pages=64, ode_steps=FEW_STEPS
    )
    library = load_token2wav(settings.resolved(Machine(cores=1, gpu=False)))
    prompt = random_prompt(library.flow.flow.config, 40, seed=0)
    rows = [random_tokens(count, count) for count in (70, 31, 95)]
    with Client(server) as client:
        for row in rows:  # two of them are computed at a time, and each side needs the voice once
            opened = chunk_inputs(str(len(row)), [], 0, False) | prompt_inputs(prompt)
            client.call("token2wav", opened, "waveform")
        with ThreadPoolExecutor(len(rows)) as pool:
            waves = pool.map(lambda row: speak(client, str(len(row)), row, [28]), rows)
            for row, wave in zip(rows, waves, strict=True):
                state = library.open(prompt, noise_seed=7)
                library.push(state, row, last=True)
                [expected] = library.advance([state])
                library.close(state)
                np.testing.assert_allclose(wave, expected, atol=TOLERANCE, rtol=0)


def test_page_tells_what_runs(server, metric):
    assert metric(server, "cosyvoice_lm_engine", engine="onnx", weights="float32") == 1
    assert metric(server, "cosyvoice_lm_engine", engine="torch") == 0
    assert metric(server, "cosyvoice_token2wav_backend", backend="onnx") == 1
