"""What a caller asks for and what it gets."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm.limits import FinishReason
from cosyvoice_runtime.lm.sampling_options import SamplingOptions
from cosyvoice_runtime.vocoder.speed import check_speed
from cosyvoice_runtime.voice.voice import Voice


@dataclass(frozen=True)
class SpeechRequest:
    """Text to speak, in a voice.

    A voice with a transcript is continued (zero-shot). ``cross_lingual`` uses only how it sounds, which a
    voice without a transcript always does; ``instruct_text`` says how to speak instead.

    Attributes:
        text: what to speak; split into segments when long.
        language: ``auto`` or a tag such as ``zh`` or ``en``.
        speed: 0.5 to 2; 1 is the voice's own.
        seed: the same request with the same seed gives the same audio; None draws one.
        sampling: how speech tokens are drawn; its own ``seed`` is not used.
        streaming: chunks as soon as they exist; otherwise one chunk per segment of text. Same audio.

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
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise InvalidInput("seed", self.seed, "an integer from 0 to 2**63 - 1")
        if self.instruct_text is not None and self.cross_lingual:
            raise InvalidInput("cross_lingual", True, "it can't be combined with instruct_text")


@dataclass(frozen=True, eq=False)
class AudioChunk:
    """A stretch of speech.

    Attributes:
        samples: float32 ``[n]`` in [-1, 1].
        sample_rate: per second.
        segment: index of the segment of text it belongs to.
        finish_reason: why the segment ended, on its last chunk; None before.
    """

    samples: Tensor
    sample_rate: int
    segment: int
    finish_reason: FinishReason | None = None
