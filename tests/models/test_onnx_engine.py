"""``tensorrt_llm`` with engine ``onnx`` on a real server: it draws what the library generates on PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from token_stream import TokenStream

from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.merged_vocabulary import MergedVocabulary
from cosyvoice_runtime.lm import Prompt, SamplingOptions, SpeechLM, generate
from cosyvoice_runtime.lm.onnx.export import export_lm
from cosyvoice_runtime.supervisor import Server

MOST_TOKENS = 20_000
"""More than a tiny network makes before a client has asked to stop."""
PROMPTS = [Prompt(range(5, 12)), Prompt([1]), Prompt([9, 8], prompt_text=[4], prompt_speech=[7, 0, 6560])]


@pytest.fixture(scope="module")
def server(serve, tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Three slots, weights in float32."""
    directory = tmp_path_factory.mktemp("onnx") / "speech_lm"
    export_lm(tiny_checkpoint, directory, "float32")
    texts = {"tensorrt_llm.engine": "auto", "tensorrt_llm.engine_dir": directory, "weight_format": "float32"}
    limits = {"max_slots": 3, "max_tokens": MOST_TOKENS, "max_sequence_tokens": MOST_TOKENS + 400}
    with serve(["tensorrt_llm"], **limits, **texts) as server:
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
        expected = [vocabulary.speech_offset + token for token in generate(lm, prompt, options)]
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


def test_page_tells_what_runs(server, metric):
    assert metric(server, "cosyvoice_lm_engine", engine="onnx", weights="float32") == 1
    assert metric(server, "cosyvoice_lm_engine", engine="torch") == 0
