"""A request for speech, and the chunks of audio that answer it."""

from __future__ import annotations

import dataclasses
import hashlib
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from numbers import Integral

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.audio.audio import check_speed
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families.tokens import END_OF_PROMPT
from cosyvoice_runtime.lm.generation import FinishReason
from cosyvoice_runtime.lm.prompt import Prompt, split_after
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.text import (
    TextFrontEnd,
    TextPrompt,
    TextTokenizer,
    cross_lingual,
    instruct,
    zero_shot,
)
from cosyvoice_runtime.voice.voice import Voice


def fresh_seed() -> int:
    """A seed that can't be foreseen, 0 to 2**63 - 1."""
    return secrets.randbits(63)


def derived_seed(seed: int, purpose: str, segment: int) -> int:
    """Seed of one purpose in one segment, 0 to 2**63 - 1; unrelated to that of any other."""
    digest = hashlib.sha256(f"{seed}/{purpose}/{segment}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


@dataclass(frozen=True)
class SpeechRequest:
    """Text to speak, in a voice.

    A voice with a transcript is continued (zero-shot). ``cross_lingual`` uses its sound alone, as does any
    voice without a transcript; ``instruct_text`` says how to speak instead.

    Attributes:
        text: the text to speak; split into segments when long.
        language: ``auto`` or a tag such as ``zh`` or ``en``.
        speed: 0.5 to 2; 1 is the voice's own.
        seed: the same request with the same seed gives the same audio; None draws one.
        sampling: how speech tokens are drawn; its own ``seed`` is not used.
        streaming: whether chunks come as soon as they exist; otherwise one chunk per segment, with the same
            audio.

    Raises:
        InvalidInput: an option is out of range or contradicts another.
    """

    text: str
    voice: Voice
    instruct_text: str | None = None
    cross_lingual: bool = False
    language: str = "auto"
    speed: float = 1.0
    seed: int | None = None
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    streaming: bool = True

    def __post_init__(self) -> None:
        check_speed(self.speed)
        if self.seed is not None and not (isinstance(self.seed, Integral) and 0 <= self.seed < 2**63):
            raise InvalidInput("seed", self.seed, "an integer from 0 to 2**63 - 1")
        if self.instruct_text is not None and self.cross_lingual:
            raise InvalidInput("cross_lingual", True, "it can't be combined with instruct_text")


@dataclass(frozen=True)
class Utterance:
    """The way in which a text is spoken: all that its driver needs besides the text.

    Attributes:
        voice_key: key of the voice's tensors, in the form that the flow takes.
        prompt_tokens: speech tokens of the flow's prompt.
        seed: the seeds of all segments are derived from it.
        speed: 0.5 to 2; 1 is the voice's own.
        sampling: how speech tokens are drawn; its own ``seed`` is not used.
        streaming: whether a client listens meanwhile.
    """

    voice_key: str
    prompt_tokens: int
    seed: int
    speed: float
    sampling: SamplingOptions
    streaming: bool

    @classmethod
    def of(cls, request: SpeechRequest, voice: Voice) -> Utterance:
        """The utterance of a request, whose voice has the form that the flow takes."""
        seed = fresh_seed() if request.seed is None else int(request.seed)
        count = len(voice.speech_tokens)
        return cls(voice.prompt_key, count, seed, request.speed, request.sampling, request.streaming)


@dataclass(frozen=True, eq=False)
class AudioChunk:
    """A stretch of speech.

    Attributes:
        samples: float32 ``[n]`` in [-1, 1].
        sample_rate: per second.
        segment: index of the segment of text it belongs to.
        finish_reason: why the segment ended, on its last chunk; None before.
        spoken_characters: of the text, on the last chunk of a segment, where that is known: of all segments
            when the text came in pieces, else of the last one.
    """

    samples: Floats
    sample_rate: int
    segment: int
    finish_reason: FinishReason | None = None
    spoken_characters: int | None = None

    @property
    def seconds(self) -> float:
        """The duration of the chunk."""
        return len(self.samples) / self.sample_rate


async def with_characters(
    chunks: AsyncGenerator[AudioChunk, None], text: str, segments: int
) -> AsyncGenerator[AudioChunk, None]:
    """The chunks of a text that was there as a whole, in so many segments; the last one says how long it
    is."""
    async with aclosing(chunks):
        async for chunk in chunks:
            if chunk.finish_reason is not None and chunk.segment == segments - 1:
                chunk = dataclasses.replace(chunk, spoken_characters=len(text))
            yield chunk


def lm_prompts(request: SpeechRequest, front_end: TextFrontEnd, tokenizer: TextTokenizer) -> list[Prompt]:
    """The speech LM's prompt for each segment of the request's text; an InvalidInput names a field."""
    segments = front_end.segments(request.text, request.language)
    return list(map(prompt_layout(request, front_end, tokenizer), segments))


def prompt_layout(
    request: SpeechRequest, front_end: TextFrontEnd, tokenizer: TextTokenizer
) -> Callable[[str], Prompt]:
    """The function that makes the speech LM's prompt of a segment of normalised text.

    Raises:
        InvalidInput: the text names the field of the request; the function may raise it, too.
    """
    marker = tokenizer.id_of(END_OF_PROMPT) if front_end.family.needs_end_of_prompt else None
    if request.instruct_text is not None:
        return lambda segment: _prompt(instruct(tokenizer, request.instruct_text or "", segment), marker)
    speaker = request.voice.speaker_embedding.tolist() if front_end.family.reads_speaker else ()
    if request.cross_lingual or not request.voice.transcript:
        lead = front_end.missing_instruction("target_text", request.text)
        if lead:
            return lambda segment: _prompt(instruct(tokenizer, lead, segment), marker, speaker=speaker)
        return lambda segment: _prompt(cross_lingual(tokenizer, segment), marker, speaker=speaker)
    lead = front_end.missing_instruction("reference_text", request.voice.transcript, request.text)
    transcript = lead + front_end.transcript(request.voice.transcript, request.language)
    speech = request.voice.speech_tokens.tolist()
    return lambda segment: _prompt(zero_shot(tokenizer, transcript, segment), marker, speech, speaker)


def _prompt(
    text: TextPrompt, marker: int | None, speech: Sequence[int] = (), speaker: Sequence[float] = ()
) -> Prompt:
    lead, prompt_text = split_after(text.prompt_ids, marker)
    return Prompt(text.target_ids, prompt_text, speech, lead, speaker)
