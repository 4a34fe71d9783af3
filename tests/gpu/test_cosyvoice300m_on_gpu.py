"""CosyVoice-300M on a GPU: captured steps of its speech LM, and chunks that sound as on a CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from test_lm_graphs import open_engine
from test_token2wav_graphs import assert_equal, prompt, speech

from cosyvoice_runtime.checkpoint import load_config
from cosyvoice_runtime.engine.runtimes.torch_runtime import open_runtime
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.engine import LmEngine
from cosyvoice_runtime.lm.torch import speech_decoder
from cosyvoice_runtime.settings import Machine, Token2WavSettings
from cosyvoice_runtime.token2wav.chunked_token2wav import ChunkedToken2Wav
from counted_draws import counted_sample_batch
from making import make_checkpoint

GPU = "cuda"
HALF = 2e-2
"""|difference| / |mel| after ten steps in float16, against float32."""
TOKENS = 130
"""A chunk, and a rest that it is faded into."""


@pytest.fixture(scope="module", params=["tiny", "full"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    directory = tmp_path_factory.mktemp("gpu300m") / request.param
    return make_checkpoint(directory, request.param, seed=0, family="cosyvoice300m")


@pytest.fixture(scope="module")
def prompts(checkpoint: Path) -> list[Prompt]:
    size = load_config(checkpoint).speech_lm.speaker_values
    speakers = torch.randn(3, size, generator=torch.Generator().manual_seed(1)).tolist()
    return [
        Prompt([5, 6, 7], speaker=speakers[0]),
        Prompt([8, 9], prompt_text=[3, 4, 5, 6], prompt_speech=list(range(140)), speaker=speakers[1]),
        Prompt([10] * 60, prompt_text=[7]),  # of an instruction, without a speaker
        Prompt([11] * 9, speaker=speakers[2]),
    ]


def decoded(engine: LmEngine, prompts: list[Prompt], strategy: str) -> list[list[int]]:
    """Each begins when the one before is three steps old."""
    found: dict[object, list[int]] = {}
    running, waiting = 0, list(enumerate(prompts))
    while running or waiting:
        if waiting:
            seed, prompt = waiting.pop(0)
            options = SamplingOptions(strategy, min_tokens=40, max_tokens=50 + 10 * seed, seed=seed)
            found[engine.add(prompt, options)] = []
            running += 1
        for _ in range(3):
            for progress in engine.step():
                assert progress.error is None
                found[progress.handle] += progress.tokens
                running -= progress.finish_reason is not None
    return list(found.values())


@pytest.mark.parametrize("strategy", ["greedy", "ras"])
def test_replayed_steps_give_the_tokens_of_eager_steps(
    checkpoint, prompts, strategy, replays, monkeypatch
) -> None:
    monkeypatch.setattr(speech_decoder, "sample_batch", counted_sample_batch)
    expected = decoded(open_engine(checkpoint, cuda_graphs=False), prompts, strategy)
    assert not replays
    actual = decoded(open_engine(checkpoint, cuda_graphs=True), prompts, strategy)
    assert len(replays) >= 49
    assert actual == expected


def token2wav(checkpoint: Path, device: str, dtype: str) -> ChunkedToken2Wav:
    settings = Token2WavSettings(checkpoint_dir=checkpoint, backend="torch", device=device, dtype=dtype)
    return open_runtime(settings.resolved(Machine(cores=1, gpu=device == GPU))).token2wav


def spoken(network: ChunkedToken2Wav, edges: list[int], speed: float = 1.0) -> torch.Tensor:
    state = network.open(prompt(network, 60, seed=3), noise_seed=3, speed=speed)
    tokens, waves = [token % 4096 for token in speech(TOKENS, seed=3)], []
    for start, end in zip([0, *edges], [*edges, TOKENS], strict=True):
        network.push(state, tokens[start:end], last=end == TOKENS)
        waves.append(network.advance([state])[0])
    return torch.from_numpy(np.concatenate(waves))


def test_streams_and_whole_utterances_sound_as_on_a_cpu(checkpoint) -> None:
    if checkpoint.name == "full":
        pytest.skip("takes minutes on a CPU")
    there, here = (token2wav(checkpoint, device, "float32") for device in (GPU, "cpu"))
    for edges, speed in (([120], 1.0), ([], 1.0), ([], 1.3)):
        assert_equal([spoken(there, edges, speed)], [spoken(here, edges, speed)])


@torch.inference_mode()
def test_mel_in_half_precision_is_near_that_in_float32(checkpoint) -> None:
    mels = []
    for dtype in ("float32", "auto"):
        flow = token2wav(checkpoint, GPU, dtype).regulated
        voice = prompt(token2wav(checkpoint, GPU, dtype), 60, seed=3)
        frames = flow.frames_of(flow.check_prompt(voice), TOKENS)
        noise = torch.randn(frames, flow.config.mel_bins, generator=torch.Generator().manual_seed(4))
        mel, _ = flow.generate(voice, [token % 4096 for token in speech(TOKENS, seed=3)], noise)
        mels.append(mel.float())
    assert flow.dtype is torch.float16
    assert float((mels[1] - mels[0]).norm() / mels[0].norm()) < HALF
