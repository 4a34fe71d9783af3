"""The inputs of ``cosyvoice2`` and ``cosyvoice2_offline``, checked, and the receivers of their speech."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np

from cosyvoice_runtime.alignment.words import TimedWord, WordMethod
from cosyvoice_runtime.audio.audio import EXTRACTOR_SAMPLE_RATE, Audio, reference_audio
from cosyvoice_runtime.audio.silence import TrimSilence
from cosyvoice_runtime.engine.utterance.request import AudioChunk, FindVoice, SpeechRequest
from cosyvoice_runtime.engine.utterance.turn import TURN_PAUSE_S, TURNS, Turn, characters_of, read_turns
from cosyvoice_runtime.engine.utterance.verdict import Verification, Verify
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families import Family
from cosyvoice_runtime.lm.generation import FinishReason
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.spoken import FIELD as SPOKEN
from cosyvoice_runtime.lm.spoken import by_segment
from cosyvoice_runtime.serving.triton.request import Inputs, Reply
from cosyvoice_runtime.serving.triton.schema import COSYVOICE2
from cosyvoice_runtime.serving.triton.tensor_spec import Tensors
from cosyvoice_runtime.settings.cosyvoice2 import PARAGRAPH_PAUSE_S
from cosyvoice_runtime.text import Lexicon
from cosyvoice_runtime.text.markup import MARKUPS, TextMarkup
from cosyvoice_runtime.text.validate import MOST_AT_ONCE
from cosyvoice_runtime.voice import Voice

SAMPLING_INPUTS = ("top_k", "top_p", "temperature", "repetition_penalty", "max_tokens")
"""The inputs that are sampling options of the same name."""


TOKEN = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class SpeechInputs:
    """The inputs of a request, before its voice is looked up."""

    text: str
    voice: str | None
    reference: Audio | None
    reference_text: str | None
    share_as: str | None
    instruct_text: str | None
    cross_lingual: bool
    language: str
    text_markup: TextMarkup | None
    lexicon: str | None
    text_voices: Mapping[str, str] | None
    speed: float
    seed: int | None
    sampling: SamplingOptions
    spoken: Sequence[Sequence[int]]
    trim_silence: TrimSilence
    turns: Sequence[Turn]
    turn_pause_s: float
    words: bool
    verify: Verify | None
    paragraph_pause_s: float
    sentence_pause_s: float | None
    start_character: int

    @classmethod
    def read(
        cls,
        inputs: Inputs,
        sampling: SamplingOptions,
        max_characters: int,
        speech_tokens: int,
        trim_silence: TrimSilence = "off",
        paragraph_pause_s: float = PARAGRAPH_PAUSE_S,
    ) -> SpeechInputs:
        """Parse a request's inputs with the deployment's sampling; an InvalidInput names an invalid one.

        Args:
            speech_tokens: how many tokens the speech LM knows.
            trim_silence, paragraph_pause_s: the deployment's, for a request without its own.
        """
        read = cls(
            text=_target_text(inputs, max_characters),
            voice=inputs.text("voice"),
            reference=_reference(inputs),
            reference_text=inputs.text("reference_text"),
            share_as=inputs.text("share_as"),
            instruct_text=inputs.text("instruct_text"),
            cross_lingual=bool(inputs.scalar("cross_lingual", default=False)),
            language=inputs.text("language") or "auto",
            text_markup=_text_markup(inputs),
            lexicon=inputs.text("lexicon"),
            text_voices=_text_voices(inputs),
            speed=inputs.scalar("speed", default=1.0),
            seed=inputs.scalar("seed"),
            sampling=_sampling(inputs, sampling),
            spoken=_spoken(inputs, speech_tokens),
            trim_silence=cast(TrimSilence, inputs.text("trim_silence", trim_silence)),
            turns=_turns(inputs, max_characters),
            turn_pause_s=_turn_pause(inputs),
            words=bool(inputs.scalar("words", default=False)),
            verify=cast("Verify | None", inputs.text("verify")),
            paragraph_pause_s=inputs.scalar("paragraph_pause_s", default=paragraph_pause_s),
            sentence_pause_s=inputs.scalar("sentence_pause_s"),
            start_character=_start_character(inputs),
        )
        read._check_voice()
        return read

    def request(self, voice: Voice, streaming: bool, family: Family, find_voice: FindVoice) -> SpeechRequest:
        """The request for a voice; an InvalidInput names an option that does not fit.

        Args:
            family: of the checkpoint.
            find_voice: finds the voices that the text names.
        """
        lexicon = None if self.lexicon is None else Lexicon.parse(self.lexicon, family.special_tokens)
        return SpeechRequest(
            text=self.text,
            voice=voice,
            instruct_text=self.instruct_text,
            cross_lingual=self.cross_lingual,
            language=self.language,
            text_markup=self.text_markup,
            lexicon=lexicon,
            speed=self.speed,
            seed=self.seed,
            sampling=self.sampling,
            streaming=streaming,
            find_voice=find_voice if self.text_voices is None else partial(self._permitted, find_voice),
            spoken=self.spoken,
            trim_silence=self.trim_silence,
            turns=self.turns,
            turn_pause_s=self.turn_pause_s,
            verify=self.verify,
            paragraph_pause_s=self.paragraph_pause_s,
            sentence_pause_s=self.sentence_pause_s,
            start_character=self.start_character,
        )

    def _permitted(self, find_voice: FindVoice, name: str) -> Voice:
        assert self.text_voices is not None
        if name not in self.text_voices:
            raise InvalidInput("voice", name, "a voice that this text may name")
        return find_voice(self.text_voices[name])

    def _check_voice(self) -> None:
        if self.turns and (self.voice is not None or self.reference is not None):
            field = "reference_wav" if self.voice is None else "voice"
            raise InvalidInput(field, self.voice or "a recording", "none beside turns, which have their own")
        if self.reference is None:
            if self.reference_text is not None:
                raise InvalidInput("reference_text", self.reference_text, "it goes with reference_wav only")
            if self.share_as is not None:
                raise InvalidInput("share_as", self.share_as, "it goes with reference_wav only")
            return
        if self.share_as is not None and not TOKEN.fullmatch(self.share_as):
            raise InvalidInput("share_as", self.share_as, "32 hexadecimal digits")
        if self.voice is not None:
            raise InvalidInput("voice", self.voice, "it can't be combined with reference_wav")
        needed = self.instruct_text is None and not self.cross_lingual
        if needed and not (self.reference_text or "").strip():
            limit = "what reference_wav says, unless cross_lingual or instruct_text"
            raise InvalidInput("reference_text", self.reference_text, limit)


def _target_text(inputs: Inputs, max_characters: int) -> str:
    text = inputs.text("target_text")
    if text is None:
        raise InvalidInput("target_text", None, "this input is required")
    if len(text) > max_characters:
        raise InvalidInput("target_text", f"{len(text)} characters", f"at most {max_characters}")
    return text


def _turns(inputs: Inputs, max_characters: int) -> Sequence[Turn]:
    written = inputs.text(TURNS)
    if written is None:
        return ()
    if inputs.text("utterance_id") is not None:
        raise InvalidInput(TURNS, written, "they come whole, without utterance_id")
    turns, most = read_turns(written), min(max_characters, MOST_AT_ONCE)  # They are laid out at once.
    if (characters := characters_of(turns)) > most:
        raise InvalidInput(TURNS, f"{characters} characters", f"at most {most}")
    return turns


def _turn_pause(inputs: Inputs) -> float:
    seconds = inputs.scalar("turn_pause_s")
    if seconds is not None and inputs.text(TURNS) is None:
        raise InvalidInput("turn_pause_s", seconds, "it goes with turns only")
    return TURN_PAUSE_S if seconds is None else seconds


def _start_character(inputs: Inputs) -> int:
    start: int = inputs.scalar("start_character", default=0)
    if start and inputs.text("utterance_id") is not None:
        raise InvalidInput("start_character", start, "0 where the text comes in pieces")
    return start


def _text_markup(inputs: Inputs) -> TextMarkup | None:
    markup = inputs.text("text_markup")
    if markup is None:
        return None
    if markup not in MARKUPS:
        raise InvalidInput("text_markup", markup, f"one of {', '.join(MARKUPS)}")
    return cast(TextMarkup, markup)


def _text_voices(inputs: Inputs) -> Mapping[str, str] | None:
    written = inputs.text("text_voices")
    if written is None:
        return None
    try:
        voices = json.loads(written)
    except (ValueError, RecursionError):
        voices = None
    if not isinstance(voices, dict) or not all(isinstance(name, str) for name in voices.values()):
        raise InvalidInput("text_voices", written, "a JSON object of names")
    return voices


def _reference(inputs: Inputs) -> Audio | None:
    samples = inputs.array("reference_wav")
    rate = inputs.scalar("reference_sample_rate", default=EXTRACTOR_SAMPLE_RATE)
    length = inputs.scalar("reference_wav_len")
    if samples is None:
        if length is not None:
            raise InvalidInput("reference_wav_len", length, "it goes with reference_wav only")
        return None
    return reference_audio(samples, rate, length)


def _sampling(inputs: Inputs, sampling: SamplingOptions) -> SamplingOptions:
    given: dict[str, Any] = {name: inputs.scalar(name) for name in SAMPLING_INPUTS}
    given["strategy"] = inputs.text("sampling_strategy")
    given = {field: value for field, value in given.items() if value is not None}
    try:
        return dataclasses.replace(sampling, **given)
    except InvalidInput as error:
        if error.field == "strategy":
            raise InvalidInput("sampling_strategy", given["strategy"], error.limit) from None
        raise


def _spoken(inputs: Inputs, speech_tokens: int) -> Sequence[Sequence[int]]:
    spoken = inputs.array(SPOKEN)
    return () if spoken is None else by_segment(spoken, speech_tokens)


REASONS_BEST_FIRST = (
    FinishReason.STOP,
    FinishReason.LENGTH,
    FinishReason.REPETITION,
    FinishReason.INCOMPLETE,
)
"""The reasons for the end of a segment, best first."""


class ChunkListener:
    """A client that receives every chunk, and plays while it receives if it ``streams``.

    Args:
        token_rate: speech tokens per second, which every answer contains.
        call: id of the gateway's call, if known.
        tells_tokens: whether it is told the speech tokens, too.

    Attributes:
        start_character: at which the answer begins, where a request asks for one from a later character on.
    """

    streams: ClassVar[bool] = True
    start_character: int | None = None

    def __init__(
        self, reply: Reply, token_rate: int, call: str | None = None, tells_tokens: bool = False
    ) -> None:
        self.call = call
        self._tells_tokens = tells_tokens
        self._reply = reply
        self._token_rate = token_rate
        self._heard = False

    @property
    def gone(self) -> bool:
        """Whether the client has left or has cancelled."""
        return self._reply.cancelled

    def send(self, chunk: AudioChunk) -> None:
        """Send a chunk; of a client that has left, :attr:`gone` tells."""
        self._heard = True
        self._reply.send(**self._outputs(chunk))

    def begin_again(self) -> bool:
        """Whether the client has received nothing yet, so that the utterance can be restarted."""
        return not self._heard

    def complete(self) -> None:
        """Send what is left at the end of the utterance."""

    def acknowledge(self) -> None:
        """Answer a request that only carried a message."""
        empty = self._outputs(AudioChunk(np.empty(0, np.float32), 0, 0))
        self._reply.send_only(**empty)

    def finish(self, error: BaseException | None) -> None:
        """End the answer, once, with an error if there is one."""
        self._reply.finish(error)

    def _outputs(self, chunk: AudioChunk) -> Tensors:
        return outputs(chunk, self._token_rate, self._tells_tokens, self.start_character)


class WholeListener(ChunkListener):
    """A client that receives everything at once; several segments report the worst reason."""

    streams = False

    def __init__(
        self, reply: Reply, token_rate: int, call: str | None = None, tells_tokens: bool = False
    ) -> None:
        super().__init__(reply, token_rate, call, tells_tokens)
        self._chunks: list[AudioChunk] = []

    def send(self, chunk: AudioChunk) -> None:
        self._chunks.append(chunk)

    def begin_again(self) -> bool:
        self._chunks.clear()
        return True

    def complete(self) -> None:
        self._reply.send_only(**self._whole())

    def _whole(self) -> Tensors:
        ends = [(chunk.finish_reason, chunk) for chunk in self._chunks if chunk.finish_reason is not None]
        reason = max((reason for reason, _ in ends), key=REASONS_BEST_FIRST.index)
        samples = np.concatenate([chunk.samples for chunk in self._chunks])
        tokens = [token for chunk in self._chunks for token in chunk.spoken_tokens]
        # A silence may follow the last segment, which knows of no characters.
        last = ends[-1][1]
        return self._outputs(
            dataclasses.replace(
                last,
                samples=samples,
                finish_reason=reason,
                spoken_tokens=tokens,
                words=[word for chunk in self._chunks for word in chunk.words],
                words_by=_least_exact(self._chunks),
                verification=_of_all([chunk.verification for _, chunk in ends]),
            )
        )


def _of_all(segments: Sequence[Verification | None]) -> Verification | None:
    """The findings about all segments; None where they are not checked."""
    checked = [each for each in segments if each is not None]
    if not checked:
        return None
    findings = [found for each in checked for found in each.findings]
    return Verification(
        findings, sum(each.redraws for each in checked), all(each.checked for each in checked)
    )


def _least_exact(chunks: Sequence[AudioChunk]) -> WordMethod | None:
    """The method of word times that an answer tells whose segments may have several."""
    methods = {chunk.words_by for chunk in chunks if chunk.words} or {chunks[-1].words_by}
    return "estimate" if "estimate" in methods else methods.pop()


def outputs(
    chunk: AudioChunk, token_rate: int, tells_tokens: bool = False, start_character: int | None = None
) -> Tensors:
    """A chunk as the models' output tensors."""
    told: dict[str, Any] = {SPOKEN: np.array(chunk.spoken_tokens, np.int32)} if tells_tokens else {}
    if chunk.words_by is not None:
        told["words"] = _written(chunk.words, chunk.words_by)
    if chunk.verification is not None:
        told["verification"] = json.dumps(chunk.verification.told(), ensure_ascii=False)
    if start_character is not None:
        told["start_character"] = start_character
    return COSYVOICE2.encode_outputs(
        waveform=chunk.samples,
        finish_reason="" if chunk.finish_reason is None else chunk.finish_reason.value,
        spoken_characters=-1 if chunk.spoken_characters is None else chunk.spoken_characters,
        sample_rate=chunk.sample_rate,
        token_rate=token_rate,
        **told,
    )


def _written(words: Sequence[TimedWord], method: WordMethod) -> str:
    """Words as the output ``words`` has them."""
    told = [
        {"text": word.text, "start_s": round(word.start_s, 3), "end_s": round(word.end_s, 3)}
        for word in words
    ]
    return json.dumps({"by": method, "words": told}, ensure_ascii=False)
