"""A request to speak, as the tensors that both models take."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from cosyvoice_client.errors import InvalidArgumentError
from cosyvoice_client.reference import SERVER_RATE, Reference

STREAMING_MODEL = "cosyvoice2"
OFFLINE_MODEL = "cosyvoice2_offline"
MARKUPS = ("auto", "plain", "markdown", "ssml")
TRIMS = ("off", "start", "both")
WAYS_TO_VERIFY = ("off", "report", "retry")

Tensors = dict[str, npt.NDArray[Any]]

OPTIONS: dict[str, type] = {
    "voice": np.object_,
    "instruct_text": np.object_,
    "language": np.object_,
    "text_markup": np.object_,
    "lexicon": np.object_,
    "text_voices": np.object_,
    "cross_lingual": np.bool_,
    "speed": np.float32,
    "seed": np.int64,
    "sampling_strategy": np.object_,
    "top_k": np.int32,
    "top_p": np.float32,
    "temperature": np.float32,
    "repetition_penalty": np.float32,
    "max_tokens": np.int32,
    "trim_silence": np.object_,
    "turns": np.object_,
    "turn_pause_s": np.float32,
    "words": np.bool_,
    "verify": np.object_,
    "paragraph_pause_s": np.float32,
    "sentence_pause_s": np.float32,
    "start_character": np.int32,
}
"""Optional inputs of one element each: numpy dtype (object for a string)."""


@dataclass(frozen=True)
class SpeechRequest:
    """A text and how it is to be spoken. What is None is not sent: the server has its own defaults.

    Attributes:
        text: what to speak.
        reference: recording of the voice to speak with.
        voice: name of a voice that the server knows, in place of a reference.
        instruct_text: how to speak.
        language: ``auto``, ``zh``, ``en``, ...
        text_markup: what the text is written in: ``auto``, ``plain``, ``markdown`` or ``ssml``.
        lexicon: what is spoken in the place of words, by word, or lines of a word, a tab and that.
        text_voices: voices that ``<voice>`` in the text may name: the server's names by those; None for all.
        cross_lingual: use only how the reference sounds, not what it says.
        speed: 1 is the voice's own.
        seed: the same request with the same seed gives the same audio.
        sampling_strategy, top_k, top_p, temperature, repetition_penalty: how speech tokens are drawn.
        max_tokens: most speech tokens of a segment of the text, 25 for a second (50 with CosyVoice-300M).
        spoken_tokens: what the chunks of a lost server have told of this request, from which another one
            goes on; empty only to be told it, None for neither.
        trim_silence: silence that is left out: ``off``, ``start`` (before the speech) or ``both`` (also
            behind it).
        turns: what several speakers say, in place of a text and a voice: objects with ``voice``, ``text``
            and, if any, ``instructions``.
        turn_pause_s: seconds of silence between two turns, 0 to 3.
        words: have each chunk tell which words are over by its end, and when each is heard.
        verify: what is done where words are not said once: ``off``, ``report`` or ``retry``.
        paragraph_pause_s: seconds of silence between two paragraphs, beside that of their own, 0 to 10.
        sentence_pause_s: seconds of silence between two segments of the text, in place of that of their own,
            0 to 10.
        start_character: the speech begins with the segment that holds this character of the text, and is what
            the whole speech has from there on.
    """

    text: str = ""
    reference: Reference | None = None
    voice: str | None = None
    instruct_text: str | None = None
    language: str | None = None
    text_markup: str | None = None
    lexicon: Mapping[str, str] | str | None = None
    text_voices: Mapping[str, str] | None = None
    cross_lingual: bool | None = None
    speed: float | None = None
    seed: int | None = None
    sampling_strategy: str | None = None
    top_k: int | None = None
    top_p: float | None = None
    temperature: float | None = None
    repetition_penalty: float | None = None
    max_tokens: int | None = None
    spoken_tokens: Sequence[int] | None = None
    trim_silence: str | None = None
    turns: Sequence[Mapping[str, str]] | None = None
    turn_pause_s: float | None = None
    words: bool | None = None
    verify: str | None = None
    paragraph_pause_s: float | None = None
    sentence_pause_s: float | None = None
    start_character: int | None = None

    def tensors(self) -> Tensors:
        """Inputs by name, each with a leading batch dimension of 1.

        ``reference_wav`` is float32 and ``spoken_tokens`` int32 ``[1, n]``, all others are ``[1, 1]``.

        Raises:
            InvalidArgumentError: a number doesn't fit into its tensor.
        """
        tensors = {"target_text": _element(self.text, np.object_)}
        if self.reference is not None:
            tensors |= _reference_tensors(self.reference)
        for name, dtype in OPTIONS.items():
            value = getattr(self, name)
            if name in _WRITERS and value is not None:
                value = _WRITERS[name](value)
            if value is not None:
                tensors[name] = _option(name, value, dtype)
        if self.spoken_tokens:
            tensors["spoken_tokens"] = np.array([self.spoken_tokens], np.int32)
        return tensors


def _lines(lexicon: Mapping[str, str] | str) -> str:
    """A lexicon as the server reads it."""
    if isinstance(lexicon, str):
        return lexicon
    return "\n".join(f"{word}\t{spoken}" for word, spoken in lexicon.items())


_WRITERS: dict[str, Callable[[Any], str]] = {
    "lexicon": _lines,
    "text_voices": json.dumps,
    "turns": json.dumps,
}
"""How values that are no numbers and no strings are written."""


def infer_inputs(protocol: ModuleType, tensors: Tensors) -> list[Any]:
    """The tensors as inputs of ``tritonclient.grpc`` or ``tritonclient.http``, given as ``protocol``."""
    return [_infer_input(protocol, name, array) for name, array in tensors.items()]


def _infer_input(protocol: ModuleType, name: str, array: npt.NDArray[Any]) -> Any:
    from tritonclient.utils import np_to_triton_dtype

    tensor = protocol.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
    tensor.set_data_from_numpy(array)
    return tensor


def message_tensors(request: SpeechRequest, utterance_id: str, text_event: str) -> Tensors:
    """The tensors of a message to an utterance whose text comes piece by piece."""
    names = {"utterance_id": utterance_id, "text_event": text_event}
    return request.tensors() | {name: _element(value, np.object_) for name, value in names.items()}


def _reference_tensors(reference: Reference) -> Tensors:
    tensors = {
        "reference_wav": np.ascontiguousarray(reference.samples[None], np.float32),
        "reference_wav_len": _element(len(reference.samples), np.int32),
        "reference_text": _element(reference.text, np.object_),
    }
    if reference.rate != SERVER_RATE:
        tensors["reference_sample_rate"] = _element(reference.rate, np.int32)
    return tensors


def _option(name: str, value: Any, dtype: type) -> npt.NDArray[Any]:
    # numpy 1 lets integers that don't fit wrap around.
    if issubclass(dtype, np.integer) and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        raise InvalidArgumentError(f"{name}: {value} does not fit into {dtype.__name__}")
    try:
        return _element(value, dtype)
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(f"{name}: {value!r} can't be sent ({error})") from error


def _element(value: object, dtype: type) -> npt.NDArray[Any]:
    if isinstance(value, str):
        value = value.encode()
    return np.array([[value]], dtype)
