"""``audio_tokenizer`` and ``speaker_embedding`` on a real server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from wave_client import Client

from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.voice.extractors import SpeakerEncoder, SpeechTokenizer

OUTPUTS = {"audio_tokenizer": "prompt_speech_tokens", "speaker_embedding": "prompt_spk_embedding"}
BATCH = 4
GATHERING_US = 500_000
"""Long enough for requests sent together to become one batch, unless the machine stands still."""
ATTEMPTS = 10
RATE = 16_000


@pytest.fixture(scope="module")
def client(serve) -> Iterator[Client]:
    given = {f"{model}.max_batch": BATCH for model in OUTPUTS}
    with serve(list(OUTPUTS), gather, **given) as server, Client(server) as client:
        yield client


def gather(repository: Path) -> None:
    for model in OUTPUTS:
        file = repository / model / "config.pbtxt"
        delay = f"max_queue_delay_microseconds: {GATHERING_US}"
        text, changed = re.subn(r"max_queue_delay_microseconds: \d+", delay, file.read_text())
        assert changed == 1
        file.write_text(text)


@pytest.fixture(scope="module")
def library(tiny_checkpoint):
    layout = Layout(tiny_checkpoint)
    tokenizer, encoder = SpeechTokenizer(layout.speech_tokenizer), SpeakerEncoder(layout.speaker_encoder)
    return {"audio_tokenizer": tokenizer, "speaker_embedding": encoder}


def recording(seconds: float, seed: int = 0) -> np.ndarray:
    return 0.1 * np.random.default_rng(seed).standard_normal(int(RATE * seconds)).astype(np.float32)


def inputs(samples: np.ndarray, length: int | None = None) -> dict[str, np.ndarray]:
    count = len(samples) if length is None else length
    return {"reference_wav": samples[None], "reference_wav_len": np.array([[count]], np.int32)}


@pytest.mark.parametrize("model", OUTPUTS)
def test_answer_equals_the_librarys(client, library, model):
    samples = recording(1.7)
    answer = client.call(model, inputs(samples), OUTPUTS[model])
    expected = library[model](samples)
    np.testing.assert_allclose(answer, expected, atol=1e-5)
    assert answer.dtype == expected.dtype


@pytest.mark.parametrize("model", OUTPUTS)
def test_only_the_valid_samples_are_read(client, library, model):
    samples = recording(1.5)
    expected = library[model](samples[:RATE])
    np.testing.assert_allclose(client.call(model, inputs(samples, RATE), OUTPUTS[model]), expected, atol=1e-5)
    whole = client.call(model, {"reference_wav": samples[None, :RATE]}, OUTPUTS[model])
    np.testing.assert_allclose(whole, expected, atol=1e-5)


@pytest.mark.parametrize("model", OUTPUTS)
@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (
            inputs(recording(0.2)),
            "reference_wav: 'a recording of 0.20 s' is not accepted; expected 0.5 to 30 s",
        ),
        (inputs(recording(31)), "reference_wav: 'a recording of 31.00 s' is not accepted"),
        (inputs(np.zeros(RATE, np.float32)), "reference_wav: 'a recording of silence"),
        (
            inputs(np.full(RATE, np.nan, np.float32)),
            "reference_wav: 'a recording with 16000 samples NaN or infinite'",
        ),
        (inputs(3000 * recording(1)), "reference_wav: 'a recording whose samples reach"),
        (inputs(recording(1), 0), "reference_wav_len: 0 is not accepted; reference_wav holds 16000 samples"),
        (inputs(recording(1), 16001), "reference_wav_len: 16001 is not accepted"),
    ],
    ids=["short", "long", "silent", "nan", "integers", "no samples", "beyond the end"],
)
def test_bad_recording_fails_alone_beside_good_ones_in_the_same_batch(
    client, library, eventually, model, bad, text
):
    good = [recording(seconds, seed) for seed, seconds in enumerate((0.6, 1.0, 1.0))]
    expected = [library[model](samples) for samples in good]
    for _ in range(ATTEMPTS):
        before = client.batch_sizes(model)
        *answers, error = client.call_together(model, [*map(inputs, good), bad], OUTPUTS[model])
        assert error.message().startswith(text)
        assert error.status() == "StatusCode.INVALID_ARGUMENT"
        for answer, wanted in zip(answers, expected, strict=True):
            np.testing.assert_allclose(answer, wanted, atol=1e-4)
        eventually(lambda before=before: requests(client.batch_sizes(model)) >= requests(before) + BATCH)
        if client.batch_sizes(model).get(BATCH, 0) > before.get(BATCH, 0):
            return
    pytest.fail("the four requests never were one batch")


def requests(batch_sizes: dict[int, int]) -> int:
    return sum(size * count for size, count in batch_sizes.items())
