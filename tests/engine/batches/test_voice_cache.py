"""Voices with the small networks: computed once, shared, evicted, and their pages given back."""

from __future__ import annotations

import numpy as np
import pytest
from spoken import alone, chunks_of, prompt_tensors, speech_tokens

from cosyvoice_runtime.engine.batches import PromptTensors, VoiceCache, WaveService
from cosyvoice_runtime.errors import InvalidInput, NotFoundError
from cosyvoice_runtime.voice import Voice

TOLERANCE = 1e-3
"""Of the waveform, full scale 1: batching changes roundings, which the running phase adds up."""
PAGES = 24


@pytest.fixture
def voices(token2wav):
    cache = VoiceCache(token2wav.flow, limit=2)
    yield cache
    cache.clear()


@pytest.fixture
def service(token2wav, voices):
    service = WaveService(token2wav, voices, idle_timeout_s=60)
    yield service
    service.close()


def run(service, *chunks):
    outcomes = service.run(chunks)
    errors = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    assert not errors
    return outcomes


def test_prompt_is_computed_once_and_shared(token2wav, voices):
    prompt = prompt_tensors(token2wav, 80)
    first = voices.acquire("v", prompt)
    assert voices.pages == PAGES - token2wav.flow.pool.free_pages == 3
    assert voices.acquire("v", None) is first
    assert voices.acquire("v", prompt) is first
    assert first.users == 3
    assert voices.pages == 3


def test_unknown_voice_says_what_to_send(voices):
    with pytest.raises(
        NotFoundError, match=r"^voice_key: 'v' is unknown; send it with prompt_speech_tokens, "
    ):
        voices.acquire("v", None)


def test_known_voice_is_not_replaced(token2wav, voices):
    first = voices.acquire("v", prompt_tensors(token2wav, 30))
    with pytest.raises(InvalidInput, match=r"^voice_key: 'v' is not accepted; it names another voice"):
        voices.acquire("v", prompt_tensors(token2wav, 30, seed=1))
    assert voices.acquire("v", prompt_tensors(token2wav, 30)) is first


def test_hash_names_the_voice_that_has_it_and_no_other(token2wav, voices):
    mine, other = prompt_tensors(token2wav, 30), prompt_tensors(token2wav, 30, seed=1)
    with pytest.raises(InvalidInput, match=r"^voice_key: .* is not accepted; the tensors' own hash"):
        voices.acquire(mine.key, other)
    assert len(voices) == 0
    voices.acquire(mine.key, mine)
    voice = Voice("0" * 64, "", mine.tokens, mine.mel, mine.speaker, "0" * 64)
    assert voice.prompt_key == mine.key


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"tokens": np.full(30, 6561)}, "prompt_speech_tokens: .*6561.* tokens are 0 to 6560"),
        ({"tokens": np.full(30, -1)}, "prompt_speech_tokens: "),
        (
            {"mel": np.zeros((59, 80), np.float32)},
            r"prompt_speech_feat: .*59, 80.* its shape must be \(60, 80\)",
        ),
        ({"mel": np.full((60, 80), np.nan, np.float32)}, "prompt_speech_feat: 'NaN or infinity'"),
        ({"speaker": np.zeros(3, np.float32)}, "prompt_spk_embedding: .*its shape must be"),
        ({"speaker": np.full(192, np.inf, np.float32)}, "prompt_spk_embedding: 'NaN or infinity'"),
        ({"tokens": np.zeros(30, np.float32)}, "prompt_speech_tokens: .*float32 .* a row of whole numbers"),
        (
            {"tokens": np.zeros((1, 30), np.int32)},
            "prompt_speech_tokens: .* a row of whole numbers",
        ),
        (
            {"mel": np.zeros((60, 80), np.int32)},
            "prompt_speech_feat: .*int32 .* floats are expected",
        ),
        ({"mel": np.zeros(60, np.float32)}, "prompt_speech_feat: .* its shape must be"),
        (
            {"tokens": np.zeros(751, np.int32), "mel": np.zeros((1502, 80), np.float32)},
            r"prompt_speech_tokens: .751. is not accepted; a prompt has at most 750 tokens \(30 s\)",
        ),
    ],
)
def test_tensors_that_are_no_prompt_are_refused_by_name(token2wav, voices, change, error):
    good = prompt_tensors(token2wav, 30)
    parts = {"tokens": good.tokens, "mel": good.mel, "speaker": good.speaker} | change
    with pytest.raises(InvalidInput, match=f"^{error}"):
        voices.acquire("v", PromptTensors(**parts))
    assert len(voices) == 0


def test_voice_unused_for_longest_is_forgotten_and_its_pages_are_free(token2wav, voices):
    for key in ("old", "kept"):
        voices.release(voices.acquire(key, prompt_tensors(token2wav, 60)))
    voices.release(voices.acquire("kept", None))
    voices.release(voices.acquire("new", prompt_tensors(token2wav, 30)))
    assert len(voices) == 2
    assert voices.pages == PAGES - token2wav.flow.pool.free_pages == 2 + 1
    with pytest.raises(NotFoundError):
        voices.acquire("old", None)


def test_voice_forgotten_while_in_use_keeps_its_pages_until_the_utterance_ends(service, token2wav, voices):
    tokens, prompts = speech_tokens(60, 1), [prompt_tensors(token2wav, 60, seed) for seed in range(3)]
    expected = alone(token2wav, prompts[0], tokens)
    begin, end = chunks_of("a", tokens, [30, 60], "0", prompts[0])
    wave = run(service, begin)
    for key in (1, 2):
        voices.release(voices.acquire(str(key), prompts[key]))
    assert not voices.computes("0", None)
    wave += run(service, end)
    np.testing.assert_allclose(np.concatenate(wave), expected, atol=TOLERANCE, rtol=0)
    assert PAGES - token2wav.flow.pool.free_pages == voices.pages == 4


def test_unused_voices_give_up_pages_before_an_utterance_recomputes(service, token2wav, voices):
    for key, prompt in (("v", 200), ("w", 300)):
        voices.release(voices.acquire(key, prompt_tensors(token2wav, prompt)))
    assert token2wav.flow.pool.free_pages == PAGES - 7 - 11
    tokens = speech_tokens(200, 3)
    expected = alone(token2wav, prompt_tensors(token2wav, 200), tokens)
    token2wav.flow.recomputing = 0
    [wave] = run(service, *chunks_of("a", tokens, [200], "v", None))
    np.testing.assert_allclose(wave, expected, atol=TOLERANCE, rtol=0)
    assert service.usage().recomputes == 0
    assert len(voices) == 2
    assert voices.computes("w", None)  # still known, computed again when it is needed


def test_without_a_free_page_the_audio_is_the_same_and_the_recompute_is_counted(service, token2wav):
    tokens, prompt = speech_tokens(120, 5), prompt_tensors(token2wav, 60)
    expected = alone(token2wav, prompt, tokens)
    taken = token2wav.flow.pool.acquire(PAGES - 3)
    wave = [run(service, chunk)[0] for chunk in chunks_of("a", tokens, [40, 80, 120], "v", prompt)]
    np.testing.assert_allclose(np.concatenate(wave), expected, atol=TOLERANCE, rtol=0)
    assert service.usage().recomputes == 1
    token2wav.flow.pool.release(taken)


def test_prompt_too_long_for_all_pages_takes_none_from_other_voices(token2wav, voices):
    voices.release(voices.acquire("small", prompt_tensors(token2wav, 60)))
    big = voices.acquire("big", prompt_tensors(token2wav, 25 * (PAGES + 2)))
    assert big.prefix is None
    assert big.start is big.prompt
    assert not voices.computes("small", None)


def test_voice_that_would_overflow_the_networks_fails_alone(service, token2wav, voices):
    good = prompt_tensors(token2wav, 60)
    wild = PromptTensors(good.tokens, np.full_like(good.mel, 3e38), good.speaker)
    tokens = speech_tokens(40, 1)
    expected = alone(token2wav, good, tokens)
    rows = [
        chunks_of("good", tokens, [40], "good", good),
        chunks_of("wild", tokens, [40], "wild", wild),
        chunks_of("also good", tokens, [40], "good", good),
    ]
    outcomes = service.run([row[0] for row in rows])
    assert str(outcomes[1]).startswith("prompt_speech_feat: 3.0000")
    for row in (0, 2):
        np.testing.assert_allclose(outcomes[row], expected, atol=TOLERANCE, rtol=0)
    assert voices.usage().pages_in_use == voices.usage().voice_pages
