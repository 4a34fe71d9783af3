"""The figures that are measured of the segments of a long text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

import voice_drift
from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.engine.utterance.request import AudioChunk
from cosyvoice_runtime.engine.utterance.utterance import TokenGroup
from cosyvoice_runtime.lm import FinishReason, Prompt, SamplingOptions
from cosyvoice_runtime.local.stages import LocalStages
from cosyvoice_runtime.text.validate import MAX_TARGET_CHARACTERS
from measuring.drift import Drift, across_and_within, speech_ends, syllable_rate

RATE = 24_000


class OneLikeness:
    def embedding(self, samples: Floats, rate: int) -> Floats:
        return np.float32([1, 0])


def tone(hertz: float, seconds: float = 2.0, level: float = 1.0, rate: int = RATE) -> Floats:
    time = np.arange(round(seconds * rate)) / rate
    return (level * np.sin(2 * np.pi * hertz * time)).astype(np.float32)


def voiced(hertz: float, level: float = 0.1, syllables: float = 4.0) -> Floats:
    """Two seconds of a tone with some harmonics whose level rises and falls."""
    time = np.arange(2 * RATE) / RATE
    sound = sum(np.sin(2 * np.pi * hertz * number * time) / number for number in range(1, 6))
    return (level * sound * (1 - np.cos(2 * np.pi * syllables * time))).astype(np.float32)


@pytest.mark.parametrize("syllables", [3, 5])
def test_each_rise_of_the_level_is_a_syllable(syllables):
    heard_share = syllable_rate(voiced(150, syllables=syllables), RATE) / syllables
    assert 0.95 < heard_share < 1.45  # The valleys between them are no speech.


def test_silence_has_no_syllables():
    assert syllable_rate(np.zeros(RATE, np.float32), RATE) == 0


def test_speech_ends_where_it_is_heard():
    quiet = np.zeros(RATE // 2, np.float32)
    samples = np.concatenate([quiet, tone(200, level=0.1), quiet])
    assert speech_ends(samples, RATE) == (RATE // 2, len(samples) - RATE // 2)
    assert speech_ends(quiet, RATE) == (0, len(quiet))


def test_joins_and_halves_are_told_apart():
    """Two segments, the second an octave higher and 6 dB louder: steady within, a step at the join."""
    low, high = voiced(120), voiced(240, level=0.2)
    drift = Drift(OneLikeness())
    segments = [drift.spoken(np.concatenate([sound, sound]), RATE) for sound in (low, high, low)]
    across, within = across_and_within(segments)
    assert across["pitch_semitones"][0] == pytest.approx(12, abs=0.2)
    assert within["pitch_semitones"][0] == pytest.approx(0, abs=0.2)
    assert across["loudness_lu"][0] == pytest.approx(6, abs=1)
    assert within["loudness_lu"][0] == pytest.approx(0, abs=0.3)
    assert across["embedding_distance"] == (0, 0)


def test_figures_of_a_text_can_be_written_and_shown():
    drift = Drift(OneLikeness())
    segments = [drift.spoken(voiced(hertz), RATE) for hertz in (120, 130, 140)]
    figures = json.loads(json.dumps(voice_drift.drift_figures(segments)))
    shown = voice_drift.drift_table([{"speaker": "slt", "context": "reference", **figures}])
    assert f"{figures['across']['pitch_semitones'][0]:.3f} (" in shown
    assert figures["first_quarter_from_last"] == 0


class TwoSegments:
    """A synthesizer that speaks two segments, the first in two chunks."""

    sample_rate = RATE
    front_end = SimpleNamespace(segments=lambda text: text.split("|"))

    def synthesize(self, request: SimpleNamespace) -> Iterator[AudioChunk]:
        low, high = voiced(120), voiced(240)
        for samples, segment in ((low[:RATE], 0), (low[RATE:], 0), (high, 1)):
            yield AudioChunk(samples, RATE, segment)


def test_segments_are_measured_whole():
    heard: list[int] = []

    def hear(samples: Floats, rate: int) -> str:
        heard.append(len(samples))
        return "one word"

    request = SimpleNamespace(text="One word.|Another word.")
    figures = voice_drift.measured(TwoSegments(), request, Drift(OneLikeness()), hear)
    assert heard == [2 * RATE, 2 * RATE]
    assert (figures["segments"], figures["seconds"]) == (2, 4.0)
    assert figures["corpus"] == 25.0  # Percent: one word of four.
    assert figures["within"]["pitch_semitones"][0] == pytest.approx(0, abs=0.2)


def prompts_of(kind: type[LocalStages], monkeypatch: pytest.MonkeyPatch) -> list[Prompt]:
    """The prompts of two segments that the speech LM reads; it says 731 and 5 for each."""
    read: list[Prompt] = []

    async def said(prompt: Prompt):
        read.append(prompt)
        for token in (731, 5):
            yield TokenGroup([token])
        yield TokenGroup([], FinishReason.STOP)

    monkeypatch.setattr(LocalStages, "generate", lambda stages, prompt, *others: said(prompt))

    async def work() -> None:
        stages = kind(None, None, {})
        for text in ([1, 2], [3]):
            prompt = Prompt(text, [50], [0, 729])
            async for _ in stages.generate(prompt, SamplingOptions(), "a", 13, None):
                pass

    asyncio.run(work())
    return read


def test_context_is_the_segment_before_behind_the_reference(monkeypatch):
    first, second = prompts_of(voice_drift.ContextStages, monkeypatch)
    assert first == Prompt([1, 2], [50], [0, 729])
    assert second == Prompt([3], [50, 1, 2], [0, 729, 731, 5])


def test_counted_context_goes_on_modulo_nine(monkeypatch):
    _, second = prompts_of(voice_drift.CountedStages, monkeypatch)
    assert second.prompt_speech == [0, 729, 2 * 729 + 2, 3 * 729 + 5]


def test_sentences_begin_again_behind_the_last_one(tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps(["One two three four five.", "Too short.", "Six seven eight nine ten."]))
    assert voice_drift.long_text(script, 3) == (
        "One two three four five. Six seven eight nine ten. One two three four five."
    )


def test_too_long_a_text_is_refused():
    with pytest.raises(SystemExit, match=f"at most {MAX_TARGET_CHARACTERS} characters"):
        voice_drift.long_text(voice_drift.parse([]).script, MAX_TARGET_CHARACTERS // 20)
