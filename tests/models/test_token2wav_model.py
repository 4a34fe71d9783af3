"""``token2wav`` on a real server speaks what the library speaks."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from speaking import FEW_STEPS
from tritonclient.utils import InferenceServerException
from wave_client import Client, chunk_inputs, prompt_inputs, random_prompt, random_tokens, speak

from cosyvoice_runtime.engine.runtimes.torch_runtime import load_token2wav
from cosyvoice_runtime.flow.voice_flow import FlowPrompt
from cosyvoice_runtime.settings import Machine, Token2WavSettings
from cosyvoice_runtime.supervisor import Server
from cosyvoice_runtime.token2wav.token2wav import Token2Wav

MODEL = "token2wav"
TOLERANCE = 2e-3
"""Of the waveform, full scale 1: batching changes roundings, which the running phase adds up; 1.02e-3 was
seen."""
BATCH = 4
TURNS = "cosyvoice_token2wav_turn_rows_count"
SINGLE_TURNS = "cosyvoice_token2wav_turn_rows_bucket"
PROMPT_TOKENS = 40
ATTEMPTS = 5


@pytest.fixture(scope="module")
def token2wav(tiny_checkpoint) -> Token2Wav:
    settings = Token2WavSettings(
        checkpoint_dir=tiny_checkpoint, backend="torch", max_flow_pages=64, ode_steps=FEW_STEPS
    )
    return load_token2wav(settings.resolved(Machine(cores=1, gpu=False)))


@pytest.fixture(scope="module")
def prompt(token2wav) -> FlowPrompt:
    return random_prompt(token2wav.flow.flow.config, PROMPT_TOKENS, seed=0)


@pytest.fixture(scope="module")
def server(serve) -> Iterator[Server]:
    settings = {"max_batch": BATCH, "max_flow_pages": 200}
    with serve([MODEL], **{f"{MODEL}.{key}": value for key, value in settings.items()}) as server:
        yield server


@pytest.fixture(scope="module")
def client(server, prompt) -> Iterator[Client]:
    """Of a server that knows the voice ``voice``."""
    with Client(server) as client:
        client.call(MODEL, chunk_inputs("first", [], 0, True) | prompt_inputs(prompt), "waveform")
        yield client


@pytest.fixture(autouse=True)
def nothing_is_left(client, server, metric, eventually):
    yield
    eventually(lambda: metric(server, "cosyvoice_token2wav_utterances") == 0)
    eventually(
        lambda: (
            metric(server, "cosyvoice_token2wav_pages_in_use")
            == metric(server, "cosyvoice_token2wav_voice_pages")
        )
    )


def alone(token2wav: Token2Wav, prompt: FlowPrompt, tokens: list[int], seed: int = 7, speed: float = 1.0):
    state = token2wav.open(prompt, seed, float(np.float32(speed)))
    token2wav.push(state, tokens, last=True)
    [wave] = token2wav.advance([state])
    token2wav.close(state)
    return wave


def assert_same(wave: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(wave, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("speed", [1.0, 0.8])
@pytest.mark.parametrize("ends", [[], [13, 38], [0, 13, 60, 60]], ids=["whole", "chunks", "empty chunks"])
def test_waveform_equals_the_librarys(client, token2wav, prompt, ends, speed):
    tokens = random_tokens(60, seed=1)
    wave = speak(client, "a", tokens, ends, speed=speed)
    assert_same(wave, alone(token2wav, prompt, tokens, speed=speed))
    assert np.abs(wave).max() > 0.01
    assert wave.dtype == np.float32


def test_utterance_without_tokens_is_an_empty_waveform(client):
    assert speak(client, "a", [], []).shape == (0,)


def test_utterances_from_many_threads_equal_single_runs_and_share_turns(
    client, server, metric, token2wav, prompt
):
    def turns() -> np.ndarray:
        """Of one utterance, and all."""
        return np.array([metric(server, SINGLE_TURNS, le="1.0"), metric(server, TURNS)])

    hops = [10, 17, 23, 30, 38, 51]

    def utterance(row: int) -> np.ndarray:
        tokens = random_tokens(50 + row, seed=row)
        return speak(client, f"u{row}", tokens, range(hops[row % 6], len(tokens), hops[row % 6]), seed=row)

    for _ in range(ATTEMPTS):
        before = turns()
        with ThreadPoolExecutor(12) as pool:
            waves = list(pool.map(utterance, range(12)))
        for row, wave in enumerate(waves):
            assert_same(wave, alone(token2wav, prompt, random_tokens(50 + row, seed=row), seed=row))
        single, every = turns() - before
        if single < every / 2:
            return
    pytest.fail(f"{single:.0f} of {every:.0f} turns had one utterance, in the last attempt too")


def test_unknown_voice_is_not_found_until_its_tensors_have_come(client, token2wav):
    other = random_prompt(token2wav.flow.flow.config, 30, seed=5)
    tokens = random_tokens(30, seed=2)
    arrays = chunk_inputs("a", tokens, 0, True, voice="other")
    with pytest.raises(
        InferenceServerException, match="voice_key: 'other' is unknown; send it with"
    ) as error:
        client.call(MODEL, arrays, "waveform")
    assert error.value.status() == "StatusCode.NOT_FOUND"
    for sent in (arrays | prompt_inputs(other), arrays):
        assert_same(client.call(MODEL, sent, "waveform"), alone(token2wav, other, tokens))


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ({"tokens": [6561]}, "INVALID_ARGUMENT", "speech_tokens: 6561 is not accepted; tokens are 0 to 6560"),
        ({"tokens": [-1]}, "INVALID_ARGUMENT", "speech_tokens: -1 is not accepted"),
        ({"tokens": [1] * 8000}, "INVALID_ARGUMENT", "speech_tokens: 8040 is not accepted"),
        ({"position": 9}, "NOT_FOUND", "utterance_id: 'bad' is unknown; it was not opened"),
        ({"speed": 3}, "INVALID_ARGUMENT", "speed: 3.0 is not accepted; a number from 0.5 to 2.0"),
        ({"speed": np.nan}, "INVALID_ARGUMENT", "speed: nan is not accepted"),
        ({"seed": -1}, "INVALID_ARGUMENT", "noise_seed: -1 is not accepted"),
        ({"utterance": ""}, "INVALID_ARGUMENT", "utterance_id: '' is not accepted"),
        ({"voice": "?"}, "NOT_FOUND", "voice_key: '?' is unknown"),
    ],
)
def test_bad_row_fails_alone_beside_good_ones(client, token2wav, prompt, change, status, text):
    tokens = random_tokens(20, seed=3)
    good = [chunk_inputs(name, tokens, 0, True) for name in ("x", "y", "z")]
    bad = chunk_inputs(**{"utterance": "bad", "tokens": tokens, "position": 0, "last": True} | change)
    *waves, error = client.call_together(MODEL, [*good, bad], "waveform")
    assert error.message().startswith(text)
    assert error.status() == f"StatusCode.{status}"
    expected = alone(token2wav, prompt, tokens)
    for wave in waves:
        assert_same(wave, expected)


def test_bad_prompt_is_refused_by_the_inputs_name(client, prompt):
    for change, text in (
        ({"prompt_speech_feat": np.zeros((1, 79, 80), np.float32)}, "prompt_speech_feat: "),
        (
            {"prompt_spk_embedding": np.full((1, 192), np.nan, np.float32)},
            "prompt_spk_embedding: 'NaN or infinity'",
        ),
        ({"prompt_speech_tokens": np.full((1, PROMPT_TOKENS), 7000, np.int32)}, "prompt_speech_tokens: "),
    ):
        arrays = chunk_inputs("a", [], 0, False, voice="bad") | prompt_inputs(prompt) | change
        with pytest.raises(InferenceServerException, match=f"^.*{text}"):
            client.call(MODEL, arrays, "waveform")


def test_prompt_without_all_of_its_parts_is_refused(client, prompt):
    arrays = chunk_inputs("a", [], 0, False, voice="bad") | prompt_inputs(prompt)
    del arrays["prompt_spk_embedding"]
    with pytest.raises(
        InferenceServerException, match=r"prompt_spk_embedding: None .* this input is required"
    ):
        client.call(MODEL, arrays, "waveform")


def test_cancel_frees_the_utterance(client, server, metric, eventually):
    client.call(MODEL, chunk_inputs("a", random_tokens(40, 1), 0, False), "waveform")
    eventually(lambda: metric(server, "cosyvoice_token2wav_utterances") == 1)
    cancel = chunk_inputs("a", [], 0, True) | {"cancel": np.array([[True]])}
    assert client.call(MODEL, cancel, "waveform").shape == (0,)
    with pytest.raises(InferenceServerException, match="utterance_id: 'a' is unknown"):
        client.call(MODEL, chunk_inputs("a", [1], 40, True), "waveform")


def test_lost_chunk_is_refused_and_ends_the_utterance(client):
    client.call(MODEL, chunk_inputs("a", [1, 2], 0, False), "waveform")
    with pytest.raises(
        InferenceServerException, match=r"position: 5 .* 2 tokens of the utterance were received"
    ):
        client.call(MODEL, chunk_inputs("a", [3], 5, False), "waveform")


def test_lookahead_steps_and_longest_silence_are_the_settings(
    serve, tiny_checkpoint, prompt, metric, eventually
):
    settings = {"ode_steps": 3, "lookahead_frames": "6", "max_flow_pages": 20, "idle_timeout_s": 8.0}
    given = Token2WavSettings(checkpoint_dir=tiny_checkpoint, backend="torch", **settings)
    library = load_token2wav(given.resolved(Machine(cores=1, gpu=False)))
    tokens = random_tokens(45, seed=9)  # chunks of at most a block, which no turn cuts
    state = library.open(prompt, 7)
    expected = []
    for start, end in ((0, 20), (20, 45)):
        library.push(state, tokens[start:end], end == 45)
        expected += library.advance([state])
    with (
        serve([MODEL], **{f"{MODEL}.{key}": value for key, value in settings.items()}) as server,
        Client(server) as client,
    ):
        client.call(MODEL, chunk_inputs("first", [], 0, True) | prompt_inputs(prompt), "waveform")
        wave = client.call(MODEL, chunk_inputs("a", tokens[:20], 0, False), "waveform")
        assert len(wave) == len(expected[0]) == 480 * (2 * 10 - 6)
        rest = client.call(MODEL, chunk_inputs("a", tokens[20:], 20, True), "waveform")
        assert_same(np.concatenate([wave, rest]), np.concatenate(expected))
        client.call(MODEL, chunk_inputs("b", [1], 0, False), "waveform")
        eventually(lambda: metric(server, "cosyvoice_token2wav_utterances") == 0)
        with pytest.raises(InferenceServerException, match="or was idle for 8 s"):
            client.call(MODEL, chunk_inputs("b", [2], 1, False), "waveform")
        assert client.call(MODEL, chunk_inputs("c", [], 0, True), "waveform").shape == (0,)
