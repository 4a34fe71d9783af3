"""Chunks: the calls by which the next speech tokens of an utterance become samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cosyvoice_runtime.arrays import Array, Floats
from cosyvoice_runtime.audio.audio import check_speed
from cosyvoice_runtime.errors import InvalidInput, NotFiniteError
from cosyvoice_runtime.flow.voice_flow import FlowPrompt
from cosyvoice_runtime.voice.digest import content_hash

Waveform = Floats
"""Samples ``[n]``, float32."""
WaveOutcome = Waveform | Exception
"""A chunk's samples, or the error that ended it."""
WaveOutcomes = Callable[[], list[WaveOutcome]]
"""A call that waits for the outcomes of chunks that are being computed."""

MAX_KEY_LENGTH = 256
MAX_CUSHION_S = 3600.0
SEED_LIMIT = 2**63
MAX_PROMPT_VALUE = 1e4
"""Log-mels are -12 to 5, embeddings below 100; far beyond them the networks overflow."""


@dataclass(frozen=True, eq=False)
class PromptTensors:
    """A voice as it arrives with a call, before it is checked.

    Attributes:
        tokens: integers ``[P]``; P may be 0.
        mel: float32 ``[frames_per_token * P, mel]``.
        speaker: float32 ``[D]``.
    """

    tokens: Array
    mel: Array
    speaker: Array

    @cached_property
    def key(self) -> str:
        """Hash of the content, equal to :attr:`~cosyvoice_runtime.voice.Voice.prompt_key`."""
        return content_hash(self.tokens, self.mel, self.speaker)

    def flow_prompt(self) -> FlowPrompt:
        """Check the arrays, and make the flow's prompt of them.

        Raises:
            InvalidInput: an array has another type, or holds NaN or infinity.
        """
        if self.tokens.ndim != 1 or not np.issubdtype(self.tokens.dtype, np.integer):
            raise InvalidInput(
                "prompt_speech_tokens", _kind(self.tokens), "a row of whole numbers is expected"
            )
        for name, array in (("prompt_speech_feat", self.mel), ("prompt_spk_embedding", self.speaker)):
            if not np.issubdtype(array.dtype, np.floating):
                raise InvalidInput(name, _kind(array), "floats are expected")
            if not np.isfinite(array).all():
                raise InvalidInput(name, "NaN or infinity", "finite values are expected")
            if array.size and np.abs(array).max() > MAX_PROMPT_VALUE:
                largest = float(np.abs(array).max())
                raise InvalidInput(name, largest, f"at most {MAX_PROMPT_VALUE:g} is expected")
        return FlowPrompt(
            self.tokens.astype(np.int64), self.mel.astype(np.float32), self.speaker.astype(np.float32)
        )


@dataclass(frozen=True, eq=False)
class WaveChunk:
    """The next speech tokens of an utterance.

    Attributes:
        utterance_id: the same for all chunks of one utterance and for no other's.
        tokens: empty to open an utterance before its first token is drawn, or at its end.
        position: number of the utterance's tokens sent before. 0 opens the utterance; a later one shows that
            no chunk was lost and that the utterance is still the one that was opened.
        last: whether no more tokens will come.
        voice_key: names the voice with the cut of its prompt: the hash of its tensors, or any other name,
            which belongs to the first voice that is sent with it. Read when the utterance is opened, as are
            the next three.
        noise_seed: 0 to 2**63 - 1.
        speed: 0.5 to 2.
        prompt: the voice itself; not needed once the voice is known.
        cancel: whether to forget the utterance; nothing else is read.
        rest: the tokens that follow, when a call is computed in pieces; checked with the first piece.
        cushion_s: seconds of audio that the listener still has to play; the less, the more urgent.
        continues: whether it follows another utterance that a listener hears, and so doesn't wait for pages.
            Read when it is opened.
    """

    utterance_id: str
    tokens: Sequence[int]
    position: int
    last: bool
    voice_key: str
    noise_seed: int
    speed: float = 1.0
    prompt: PromptTensors | None = None
    cancel: bool = False
    rest: Sequence[int] = ()
    cushion_s: float = 0.0
    continues: bool = False

    @classmethod
    def forgetting(cls, utterance_id: str) -> WaveChunk:
        """The chunk that cancels an utterance."""
        return cls(utterance_id, (), 0, True, "", 0, cancel=True)

    def check(self) -> None:
        """Check everything that doesn't depend on the utterance's state; of a cancel, the id alone.

        Raises:
            InvalidInput: the text names the input.
        """
        _check_name("utterance_id", self.utterance_id)
        if self.cancel:
            return
        if not isinstance(self.position, int) or self.position < 0:
            raise InvalidInput("position", self.position, "0 or more tokens")
        if not isinstance(self.cushion_s, float | int) or not 0 <= self.cushion_s <= MAX_CUSHION_S:
            raise InvalidInput("cushion", self.cushion_s, f"0 to {MAX_CUSHION_S:g} s")
        for token in (*self.tokens, *self.rest):
            if not isinstance(token, int):
                raise InvalidInput("speech_tokens", token, "whole numbers are expected")

    def check_opening(self) -> None:
        """Check the inputs that are read when the utterance is opened; an InvalidInput names one."""
        _check_name("voice_key", self.voice_key)
        if not isinstance(self.noise_seed, int) or not 0 <= self.noise_seed < SEED_LIMIT:
            raise InvalidInput("noise_seed", self.noise_seed, "an integer from 0 to 2**63 - 1")
        if not isinstance(self.speed, float | int):
            raise InvalidInput("speed", self.speed, "a number is expected")
        check_speed(self.speed)


class BrokenUtteranceError(NotFiniteError):
    """The samples of an utterance hold NaN or infinity.

    Attributes:
        prompt: of the voice that the utterance was opened with.
    """

    def __init__(self, stage: str, prompt: FlowPrompt) -> None:
        super().__init__(stage)
        self.prompt = prompt


def _check_name(field: str, name: object) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_KEY_LENGTH:
        raise InvalidInput(field, name, f"1 to {MAX_KEY_LENGTH} characters are expected")


def _kind(array: Array) -> str:
    return f"{array.dtype} {array.shape}"
