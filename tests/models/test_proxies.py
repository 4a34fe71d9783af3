"""Proxies of a real server: they answer as the networks do, and a new voice outlives the engine."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import ALL_MODELS
from speaking import TEXT, assert_same_audio, reference
from supervised import Supervised
from token_stream import TokenStream
from wave_client import Client

from cosyvoice_client import SpeechRequest
from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.merged_vocabulary import MergedVocabulary
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.torch.decoder import generate
from cosyvoice_runtime.lm.torch.network import SpeechLM
from cosyvoice_runtime.voice.extractors import SpeakerEncoder, SpeechTokenizer

REQUEST = SpeechRequest(TEXT, voice="default", seed=1)
LONG = SpeechRequest(f"{TEXT} " * 60, voice="default", seed=1)


@pytest.fixture(scope="module")
def server(render_models, tmp_path_factory) -> Iterator[Supervised]:
    texts = {
        "cosyvoice2.voices_dir": tmp_path_factory.mktemp("voices"),
        "token2wav.max_flow_pages": 64,
    }
    repository = render_models(ALL_MODELS, **texts)
    with Supervised(repository, "server.open_models=*") as server:
        yield server


def test_speech_lm_answers_through_its_door_as_the_library_generates(server, tiny_checkpoint):
    layout, config = Layout(tiny_checkpoint), load_config(tiny_checkpoint)
    lm = SpeechLM.from_tensors(config.speech_lm, load_tensors(layout, "llm", config))
    vocabulary = MergedVocabulary.of(layout, config.speech_lm)
    inputs = {"request_output_len": 60, "min_tokens": 20, "seed": 11, "exclude_input_in_output": True}
    ids = [vocabulary.sos_id, *range(5, 12), vocabulary.task_id]
    at = SimpleNamespace(grpc_url=server.grpc_url)
    answer = TokenStream(at, ids, **inputs, sampling_strategy="greedy", streaming=True).read()
    options = SamplingOptions(strategy="greedy", min_tokens=20, max_tokens=60)
    expected, _ = generate(lm, Prompt(text=range(5, 12)), options)
    assert answer.ids == [vocabulary.speech_offset + token for token in expected]
    assert answer.finish_reasons[-1] in ("stop", "length")


def test_extractors_answer_at_their_doors(server, tiny_checkpoint):
    samples = 0.1 * np.random.default_rng(7).standard_normal(27_200).astype(np.float32)
    layout = Layout(tiny_checkpoint)
    for model, output, extract in (
        ("audio_tokenizer", "prompt_speech_tokens", SpeechTokenizer(layout.speech_tokenizer)),
        ("speaker_embedding", "prompt_spk_embedding", SpeakerEncoder(layout.speaker_encoder)),
    ):
        with Client(server) as client:
            answer = client.call(model, {"reference_wav": samples[None]}, output)
        np.testing.assert_allclose(answer, extract(samples), atol=1e-5)


def test_new_voice_is_made_by_a_process_that_is_back(server):
    request = SpeechRequest(TEXT, reference(210), seed=1)
    server.signal("token2wav")
    fresh = server.spoken_within(request, max(60.0, 3 * server.start_s))
    assert_same_audio(server.spoken(request), fresh)
