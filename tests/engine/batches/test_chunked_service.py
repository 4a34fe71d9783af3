"""CosyVoice-300M's flow in the wave service: its schedule is heard, so nothing may cut or join its chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future

import numpy as np
import pytest

from cosyvoice_runtime.checkpoint.config_flow import RegulatedFlowConfig
from cosyvoice_runtime.engine.batches import PromptTensors, WaveChunk, load
from cosyvoice_runtime.engine.batches.chunk import WaveOutcome
from cosyvoice_runtime.engine.batches.load import start_scheduler
from cosyvoice_runtime.engine.batches.memory import WaveMemory
from cosyvoice_runtime.engine.batches.scheduler import WaveScheduler
from cosyvoice_runtime.engine.batches.usage import WaveMetrics
from cosyvoice_runtime.engine.runtimes.runtime import WaveRuntime
from cosyvoice_runtime.engine.runtimes.torch_runtime import open_runtime
from cosyvoice_runtime.errors import InvalidInput, NotFoundError
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.settings import Machine, Token2WavSettings
from cosyvoice_runtime.token2wav.chunked_token2wav import ChunkedToken2Wav
from making import make_checkpoint

TOKENS = np.random.default_rng(3).integers(0, 4096, 260).tolist()
FIRST, NEXT = 38_912, 44_032
FRAME = 256


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Token2WavSettings:
    made = make_checkpoint(tmp_path_factory.mktemp("made") / "tiny", "tiny", seed=5, family="cosyvoice300m")
    given = Token2WavSettings(checkpoint_dir=made, ode_steps=3, threads=1)
    return given.resolved(Machine(cores=1, gpu=False))


@pytest.fixture(scope="module")
def runtime(settings: Token2WavSettings) -> WaveRuntime:
    return open_runtime(settings)


@pytest.fixture
def scheduler(
    runtime: WaveRuntime, settings: Token2WavSettings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[WaveScheduler]:
    """Whose turns are over at once: whatever may be cut is cut."""
    monkeypatch.setattr(load, "CPU_BATCH_S", 1e-3)
    metrics = Metrics("token2wav")
    memory = WaveMemory(runtime, 4, metrics, "cpu")
    scheduler = start_scheduler(runtime, settings, WaveMetrics(metrics, "cpu"), memory)
    yield scheduler
    scheduler.close()


@pytest.fixture(scope="module")
def voice(runtime: WaveRuntime) -> PromptTensors:
    config = runtime.token2wav.flow.flow.config
    assert isinstance(config, RegulatedFlowConfig)
    random = np.random.default_rng(1)
    mel = (2 * random.standard_normal((config.frames(60) + 3, config.mel_bins)) - 6).astype(np.float32)
    speaker = random.standard_normal(config.speaker_dim).astype(np.float32)
    return PromptTensors(random.integers(0, 4096, 60).astype(np.int32), mel, speaker)


def chunk(
    name: str, voice: PromptTensors, tokens: Sequence[int], position: int = 0, last: bool = True, **how
) -> WaveChunk:
    return WaveChunk(name, list(tokens), position, last, voice.key, 7, prompt=voice, **how)


def outcomes(scheduler: WaveScheduler, chunks: Sequence[WaveChunk]) -> list[WaveOutcome]:
    """Of chunks that all wait at the same time."""
    futures: list[Future[WaveOutcome]] = [Future() for _ in chunks]
    for each, future in zip(chunks, futures, strict=True):
        scheduler.submit(each, future.set_result)
    return [future.result(timeout=120) for future in futures]


def alone(runtime: WaveRuntime, voice: PromptTensors, *pushes: tuple[Sequence[int], bool]) -> np.ndarray:
    token2wav = runtime.token2wav
    assert isinstance(token2wav, ChunkedToken2Wav)
    state = token2wav.open(voice.flow_prompt(), noise_seed=7)
    waves = []
    for tokens, last in pushes:
        token2wav.push(state, tokens, last)
        waves += token2wav.advance([state])
    return np.concatenate(waves)


def test_whole_utterance_is_one_chunk_however_short_a_turn_is(scheduler, runtime, voice):
    [wave] = outcomes(scheduler, [chunk("u", voice, TOKENS)])
    assert np.array_equal(wave, alone(runtime, voice, (TOKENS, True)))
    assert len(wave) == FRAME * int(260 / 50 * 22_050 / 256)


def test_stream_is_heard_in_its_schedule_beside_others(scheduler, runtime, voice):
    cuts = [(0, 120), (120, 220), (220, 260)]
    chunks = [
        chunk(name, voice, TOKENS[start:end], start, end == len(TOKENS))
        for start, end in cuts
        for name in "ab"
    ]
    waves = outcomes(scheduler, chunks)
    assert [len(wave) for wave in waves[::2]] == [FIRST, NEXT, FRAME * 123]
    expected = alone(runtime, voice, *((TOKENS[start:end], end == len(TOKENS)) for start, end in cuts))
    for one in (waves[::2], waves[1::2]):
        assert np.array_equal(np.concatenate(one), expected)


def test_other_speed_is_heard_when_the_tokens_come_in_pieces(scheduler, voice):
    pieces = [
        chunk("u", voice, TOKENS[:130], last=False, speed=2.0),
        chunk("u", voice, TOKENS[130:], 130, speed=2.0),
    ]
    whole = chunk("whole", voice, TOKENS, speed=2.0)
    first, second, expected = outcomes(scheduler, [*pieces, whole])
    assert len(first) == 0
    assert np.array_equal(second, expected)


def test_shortest_utterance_has_a_frame_at_the_highest_speed(scheduler, voice):
    [wave] = outcomes(scheduler, [chunk("u", voice, TOKENS[:1], speed=2.0)])
    assert len(wave) == FRAME


def test_voice_is_known_after_its_first_utterance(scheduler, voice):
    [first] = outcomes(scheduler, [chunk("first", voice, TOKENS[:30])])
    known = WaveChunk("known", TOKENS[:30], 0, True, voice.key, 7)
    unknown = WaveChunk("unknown", TOKENS[:30], 0, True, "nobody", 7)
    again, refused = outcomes(scheduler, [known, unknown])
    assert np.array_equal(again, first)
    assert isinstance(refused, NotFoundError)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda voice: PromptTensors(voice.tokens, voice.mel[:0], voice.speaker), "prompt_speech_feat"),
        (lambda voice: PromptTensors(voice.tokens, voice.mel[:, 1:], voice.speaker), "prompt_speech_feat"),
        (lambda voice: PromptTensors(voice.tokens, voice.mel, voice.speaker[1:]), "prompt_spk_embedding"),
        (lambda voice: PromptTensors(voice.tokens + 4096, voice.mel, voice.speaker), "prompt_speech_tokens"),
        (
            lambda voice: PromptTensors(voice.tokens, np.tile(voice.mel, (30, 1)), voice.speaker),
            "prompt_speech_feat",
        ),
    ],
)
def test_what_is_no_voice_of_this_checkpoint_is_refused_by_input(scheduler, voice, change, field):
    [refused] = outcomes(scheduler, [chunk("u", change(voice), TOKENS[:30])])
    assert isinstance(refused, InvalidInput)
    assert refused.field == field


def test_token_of_another_checkpoint_ends_its_utterance_alone(scheduler, voice):
    refused, spoken = outcomes(scheduler, [chunk("bad", voice, [4096]), chunk("good", voice, TOKENS[:30])])
    assert isinstance(refused, InvalidInput)
    assert len(spoken) == FRAME * int(30 / 50 * 22_050 / 256)


def test_fused_kernels_are_refused_by_name(settings: Token2WavSettings) -> None:
    with pytest.raises(InvalidInput, match=r"kernels: 'fused' .*chunks are wholes"):
        open_runtime(settings.replace(kernels="fused"))
