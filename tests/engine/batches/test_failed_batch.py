"""A batch that fails in the middle, with the small networks: the innocent hear what they would hear alone."""

from __future__ import annotations

import numpy as np
import pytest
from spoken import chunks_of, prompt_tensors, speech_tokens

from cosyvoice_runtime.engine.batches import VoiceCache, WaveService
from cosyvoice_runtime.token2wav.token2wav import Token2Wav

BROKEN_SEED = 13
ENDS = [30, 58, 85]


def lost(frames: int) -> None:
    """In place of using up noise: its utterance fails after others of the batch have advanced."""
    raise RuntimeError(f"{frames} frames of noise are lost")


class FragileToken2Wav(Token2Wav):
    def open(self, voice, noise_seed, speed=1.0):
        state = super().open(voice, noise_seed, speed)
        if noise_seed == BROKEN_SEED:
            state.vocoder.noise.skip = lost
        return state


@pytest.fixture
def service(token2wav):
    fragile = FragileToken2Wav(token2wav.flow, token2wav.vocoder)
    service = WaveService(fragile, VoiceCache(fragile.flow, 4), idle_timeout_s=60)
    yield service
    service.close()


@pytest.mark.parametrize("speed", [1.0, 0.8])
def test_the_innocent_of_a_failed_batch_hear_exactly_what_they_hear_alone(service, token2wav, speed):
    prompt = prompt_tensors(token2wav, 30)
    heard: dict[str, list[np.ndarray]] = {}

    def utterance(name: str, seed: int):
        chunks = chunks_of(name, speech_tokens(ENDS[-1], seed), ENDS, "v", prompt, seed, speed)
        heard[name] = []
        return chunks

    def run(*chunks):
        outcomes = service.run(chunks)
        for chunk, outcome in zip(chunks, outcomes, strict=True):
            if not isinstance(outcome, Exception):
                heard[chunk.utterance_id].append(outcome)
        return outcomes

    for name, seed in (("a alone", 1), ("b alone", 2)):
        for chunk in utterance(name, seed):
            run(chunk)
    first, bad, second = utterance("a", 1), utterance("bad", BROKEN_SEED), utterance("b", 2)
    run(first[0])
    run(second[0])
    free = token2wav.flow.pool.free_pages
    outcomes = run(first[1], bad[0], second[1])
    assert "frames of noise are lost" in str(outcomes[1])
    assert token2wav.flow.pool.free_pages == free - 2  # a chunk for each that goes on
    run(first[2])
    run(second[2])
    for name in ("a", "b"):
        np.testing.assert_array_equal(np.concatenate(heard[name]), np.concatenate(heard[f"{name} alone"]))
    assert len(service) == 0
