"""Networks for references whose memory goes back while nobody brings any."""

from __future__ import annotations

import time

import numpy as np
import pytest
from triton_python_backend_utils import InferenceRequest

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.serving.hosted.extractors import AudioTokenizer, SpeakerEmbedding
from cosyvoice_runtime.settings import AudioTokenizerSettings, Machine, SpeakerEmbeddingSettings

RATE = 16_000
MODELS = {AudioTokenizer: AudioTokenizerSettings, SpeakerEmbedding: SpeakerEmbeddingSettings}


def answered(model):
    samples = np.sin(np.arange(2 * RATE) / 20).astype(np.float32)[None]
    [response] = model.execute([InferenceRequest({"reference_wav": samples})])
    [tensor] = response.output_tensors()
    return tensor.as_numpy()


def gone(model):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and model._extractor._held is not None:
        time.sleep(0.02)
    return model._extractor._held is None


@pytest.mark.parametrize("kind", MODELS, ids=lambda kind: kind.__name__)
def test_an_extractor_comes_back_as_it_was(kind, tiny_checkpoint):
    settings = MODELS[kind](checkpoint_dir=tiny_checkpoint, idle_s=0.2)
    model = kind(settings.resolved(Machine(cores=1, gpu=False)))
    before = answered(model)
    for _ in range(2):
        assert gone(model)
        np.testing.assert_array_equal(answered(model), before)
    model.finalize()


def test_an_extractor_stays_by_default(tiny_checkpoint):
    settings = AudioTokenizerSettings(checkpoint_dir=tiny_checkpoint)
    model = AudioTokenizer(settings.resolved(Machine(cores=1, gpu=False)))
    held = model._extractor._held
    answered(model)
    assert model._extractor._timer is None  # nothing will ring
    assert model._extractor._held is held
    model.finalize()


def test_an_engine_of_a_gpu_does_not_rest(tmp_path):
    with pytest.raises(InvalidInput, match=r"audio_tokenizer\.idle_s: 5\.0 is not accepted; 0 with backend"):
        AudioTokenizerSettings(checkpoint_dir=tmp_path, backend="tensorrt", device="cuda", idle_s=5.0)
