"""A checkpoint's stages one after another, each compared with itself in float32."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.audio.read import read_audio
from cosyvoice_runtime.check import precisions
from cosyvoice_runtime.check.comparison import RoundResult, Row, of_logits, of_mel, of_samples
from cosyvoice_runtime.check.precisions import PrecisionRound
from cosyvoice_runtime.check.speaking import TOKENS, drawn, mel_of, samples_of, watched
from cosyvoice_runtime.check.watch import NumberWatch
from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.verify import verify_checkpoint
from cosyvoice_runtime.engine.utterance.layout import lm_prompts
from cosyvoice_runtime.engine.utterance.request import SpeechRequest
from cosyvoice_runtime.errors import (
    FLOW,
    OUTPUTS,
    SPEAKER_ENCODER,
    SPEECH_LM,
    SPEECH_TOKENIZER,
    VOCODER,
    CosyVoiceError,
)
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.local.networks import open_lm, open_token2wav
from cosyvoice_runtime.serving.not_finite import DAMAGED, speech_lm_remedies, token2wav_remedies
from cosyvoice_runtime.settings import Settings
from cosyvoice_runtime.text import TextFrontEnd, read_tokenizer
from cosyvoice_runtime.token2wav.token2wav import flow_prompt
from cosyvoice_runtime.voice.build import assemble_voice, extractor_samples, prompt_mel
from cosyvoice_runtime.voice.extractors import SpeakerEncoder, SpeechTokenizer
from cosyvoice_runtime.voice.voice import Voice

SENTENCE = "Hello there, this is a known sentence."
IDENTITY = "check"


class Check:
    """The check of one checkpoint.

    Args:
        settings: resolved; they name the checkpoint.
        reference: recording to speak like, 0.5 to 30 s.
        exported: empty directory for graphs of ONNX Runtime.
    """

    def __init__(self, settings: Settings, reference: Path, transcript: str, exported: Path) -> None:
        self._settings, self._exported = settings, exported
        self._layout = Layout(settings.tensorrt_llm.checkpoint_dir)
        self._reference, self._transcript = reference, transcript
        self._remedies = speech_lm_remedies(settings.tensorrt_llm) | token2wav_remedies(settings.token2wav)
        self._broken: set[str] = set()

    def rows(self) -> Iterator[Row]:
        """The findings, each as soon as it is made.

        Raises:
            CosyVoiceError: the checkpoint or the reference can't be read.
        """
        yield self._weights()
        self._config = load_config(self._layout.directory)
        yield from self._extractors()
        served = precisions.served(self._settings, self._exported)
        first = precisions.float32(served, self._exported)
        expected = None
        for precision in (first, served):
            if precision is not None:
                expected = yield from self._spoken(precision, expected)

    def _weights(self) -> Row:
        problems = verify_checkpoint(self._layout.directory)
        found = f"{len(problems)} problems" if problems else "complete, all values finite"
        return Row("weights", "as stored", found, wrong="; ".join(problems))

    def _extractors(self) -> Iterator[Row]:
        audio, layout, family = read_audio(self._reference), self._layout, self._layout.family
        samples, watch = extractor_samples(audio), NumberWatch()
        given: dict[str, Any] = {}
        opened: dict[str, Callable[[], Callable[[Floats], Any]]] = {
            SPEECH_TOKENIZER: lambda: SpeechTokenizer.of(layout),
            SPEAKER_ENCODER: lambda: SpeakerEncoder(layout.speaker_encoder),
        }
        with watch.sessions():
            for stage, open_ in opened.items():
                failure = ""
                try:
                    given[stage] = open_()(samples)
                except CosyVoiceError as error:
                    failure = str(error)
                if stage in watch.first:
                    failure = f"first NaN or infinity out of {watch.first[stage]}; its weights are damaged"
                    given.pop(stage, None)
                yield Row(
                    stage, "float32 on onnx, cpu", "finite" if not failure else "not finite", wrong=failure
                )
        flow = self._config.flow
        self._voice = Voice.of_nobody(flow.mel_bins, flow.speaker_dim, IDENTITY)
        if len(given) == len(opened):
            transcript = family.instructed(self._transcript)
            mel = prompt_mel(audio, family.mel)
            tokens, embedding = given[SPEECH_TOKENIZER], given[SPEAKER_ENCODER]
            self._voice = assemble_voice(audio, transcript, mel, tokens, embedding, IDENTITY, family)

    def _spoken(
        self, precision: PrecisionRound, expected: RoundResult | None
    ) -> Generator[Row, None, RoundResult]:
        watch = NumberWatch()
        with watch.sessions():
            lm, _ = open_lm(self._layout, self._config, precision.lm_placing)
            token2wav = open_token2wav(self._layout, self._config, precision.wave_placing)
        with watched(watch, lm, token2wav), np.errstate(all="ignore"):
            forced = None if expected is None else expected.tokens
            said, logits = drawn(lm, self._prompt(), forced)
            tokens: Sequence[int] = (
                forced or said or self._other_tokens()
            )  # each network gets tokens, whatever broke
            mel = mel_of(token2wav, flow_prompt(self._voice), tokens)
            heard = mel if np.isfinite(mel).all() else self._other_mel()
            samples = samples_of(token2wav, heard)
            of_first = samples if expected is None else samples_of(token2wav, expected.mel)
        spoken = RoundResult(tokens, logits, heard, samples, of_first)
        for stage, values, compared in (
            (SPEECH_LM, logits, of_logits),
            (FLOW, mel, of_mel),
            (VOCODER, samples, of_samples),
        ):
            watch.look(stage, OUTPUTS[stage], bool(np.isfinite(values).all()))
            if stage in watch.first:
                yield self._broken_row(stage, precision, watch.first[stage])
            else:
                comparison = compared(spoken, expected, precision.formats[stage])
                yield Row(stage, precision.label(stage), *comparison)
        return spoken

    def _broken_row(self, stage: str, precision: PrecisionRound, place: str) -> Row:
        # What breaks in float32 as well is no question of precision.
        remedy = DAMAGED if stage in self._broken else self._remedies[stage]
        wrong = f"first NaN or infinity out of {place}; {remedy}"
        if precision.formats[stage] == "float32":
            self._broken.add(stage)
            wrong = f"first NaN or infinity out of {place}; its weights are damaged or too large"
        return Row(stage, precision.label(stage), "not finite", wrong=wrong)

    def _prompt(self) -> Prompt:
        tokenizer = read_tokenizer(self._layout)
        front_end = TextFrontEnd(tokenizer, family=self._layout.family)
        return lm_prompts(SpeechRequest(SENTENCE, self._voice), front_end, tokenizer)[0]

    def _other_tokens(self) -> list[int]:
        """Tokens that stand in where the speech LM says nothing."""
        return self._voice.speech_tokens[:TOKENS].tolist() or list(range(TOKENS))

    def _other_mel(self) -> Floats:
        """Mel that is vocoded where the flow gives nothing: the reference itself, or silence."""
        mel: Floats = self._voice.prompt_mel.T
        return np.ascontiguousarray(mel) if mel.size else np.zeros((mel.shape[0], TOKENS), np.float32)
