import pytest
import torch

from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.vocoder.torch import HiFT
from small_hift import CAUSAL, CONFIGS, PUBLISHED, published_tensors, random_mel, small_hift, whole
from wide_range import error, turned_vocoder


@pytest.mark.parametrize("frames", [1, 2, 17])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_frame_becomes_hop_samples_within_the_limit(config: VocoderConfig, frames: int) -> None:
    wave = whole(small_hift(config), random_mel(frames, config=config), seed=1)
    assert wave.shape == (frames * config.hop,)
    assert wave.dtype == torch.float32
    assert 0.01 < wave.std() < config.audio_limit
    assert wave.abs().max() <= config.audio_limit


def test_equal_rows_of_a_batch_equal_single_runs() -> None:
    hift = small_hift(dtype=torch.float32)
    mels = torch.stack([random_mel(20, seed) for seed in range(3)])
    for row, wave in zip(mels, hift(mels), strict=True):
        torch.testing.assert_close(wave, whole(hift, row), atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_decoder_stays_near_float32(dtype: torch.dtype) -> None:
    half, full = small_hift(dtype=dtype), small_hift(dtype=torch.float32)
    assert half.decoder.conv_pre.weight.dtype == dtype
    assert half.f0_predictor.classifier.weight.dtype == torch.float64
    mel = random_mel(25)
    difference = whole(half, mel, seed=1) - whole(full, mel, seed=1)
    assert difference.pow(2).mean().sqrt() < 0.1 * whole(full, mel, seed=1).pow(2).mean().sqrt()


def test_noise_changes_the_waveform_and_its_seed_fixes_it() -> None:
    hift, mel = small_hift(PUBLISHED), random_mel(10)
    assert torch.equal(whole(hift, mel, seed=1), whole(hift, mel, seed=1))
    assert not torch.equal(whole(hift, mel, seed=1), whole(hift, mel, seed=2))
    assert not torch.equal(whole(hift, mel, seed=1), whole(hift, mel))


@pytest.mark.parametrize("config", [PUBLISHED, CAUSAL], ids=["published", "causal"])
@pytest.mark.parametrize(("dtype", "most"), [(torch.bfloat16, 0.04), (torch.float16, 0.005)])
def test_phases_of_many_turns_are_heard_in_half_precision(
    dtype: torch.dtype, most: float, config: VocoderConfig
) -> None:
    tensors = turned_vocoder(published_tensors(config))
    half, full = (HiFT.from_tensors(config, tensors, dtype=each) for each in (dtype, torch.float64))
    mel = random_mel(25, config=config)
    assert error(whole(half, mel, seed=1), whole(full, mel, seed=1)) < most
