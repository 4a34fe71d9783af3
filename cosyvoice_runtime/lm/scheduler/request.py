"""Requests in the terms of NVIDIA's ``inflight_batcher_llm``, checked and with its defaults."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cosyvoice_runtime.checkpoint.merged_vocabulary import MergedVocabulary
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.generation import TokenLimits
from cosyvoice_runtime.lm.prompt import NO_ADAPTERS, num_positions, split_after
from cosyvoice_runtime.lm.text_segment import MOST_TEXT
from cosyvoice_runtime.settings.tensorrt_llm import TAKE_OPEN_TEXT

FIELD = "input_ids"
SPEAKER = "prompt_spk_embedding"


def read_prompt(
    ids: Sequence[int],
    vocabulary: MergedVocabulary,
    text_open: bool = False,
    end_of_prompt: int | None = None,
    speaker: Sequence[float] = (),
) -> Prompt:
    """The prompt in ``[sos] text [task_id] speech``; a transcript is part of the text.

    Args:
        text_open: the text to speak comes later; what stands here is the transcript alone, if there is one,
            and before it the instruction.
        end_of_prompt: text id with which an instruction ends; None without instructions.
        speaker: embedding of the voice, if there is one.

    Raises:
        InvalidInput: another layout; names the first offending id and its position.
    """
    if not ids or ids[0] != vocabulary.sos_id:
        raise InvalidInput(FIELD, list(ids[:1]), f"the first id is sos, {vocabulary.sos_id}")
    if vocabulary.task_id not in ids:
        limit = f"the text ends with task_id, {vocabulary.task_id}"
        raise InvalidInput(FIELD, f"{len(ids)} ids without task_id", limit)
    task = ids.index(vocabulary.task_id)
    if task == 1 and not text_open:
        raise InvalidInput(FIELD, list(ids[:2]), "at least one text id stands between sos and task_id")
    codes = vocabulary.code_ids
    _check("text", ids, range(1, task), vocabulary.text_ids)
    _check("prompt speech", ids, range(task + 1, len(ids)), codes)
    speech = tuple(id_ - codes.start for id_ in ids[task + 1 :])
    text = tuple(ids[1:task])
    if not text_open:
        return Prompt(text, prompt_speech=speech, speaker=speaker)
    lead, transcript = split_after(text, end_of_prompt)
    return Prompt((), transcript, speech, lead, speaker)


def read_text(ids: Sequence[int], vocabulary: MergedVocabulary) -> list[int]:
    """Further text of a running request.

    Raises:
        InvalidInput: an id is not one of text.
    """
    accepted = vocabulary.text_ids
    for position, id_ in enumerate(ids):
        if id_ not in accepted:
            limit = f"text ids are {accepted.start} to {accepted.stop - 1}"
            raise InvalidInput("more_text", f"{id_} at position {position}", limit)
    return list(ids)


def _check(what: str, ids: Sequence[int], positions: range, accepted: range) -> None:
    for position in positions:
        if ids[position] not in accepted:
            limit = f"{what} ids are {accepted.start} to {accepted.stop - 1}"
            raise InvalidInput(FIELD, f"{ids[position]} at position {position}", limit)


OPTION_FIELDS = {
    "runtime_top_k": "top_k",
    "runtime_top_p": "top_p",
    "temperature": "temperature",
    "repetition_penalty": "repetition_penalty",
    "seed": "seed",
    "min_tokens": "min_tokens",
    "request_output_len": "max_tokens",
    "sampling_strategy": "strategy",
    "ras_window": "window",
    "ras_threshold": "tau",
}
"""Tensors that are sampling options, and the names of these in the library."""

DEFAULTS = {"seed": 0, "min_tokens": 1}
"""NVIDIA's, where they differ from the library's (TensorRT-LLM, ``DefaultDecodingParams``)."""

FIELDS = (
    *OPTION_FIELDS,
    "input_lengths",
    "end_id",
    "streaming",
    "exclude_input_in_output",
    "first_tokens",
    "group_tokens",
    "text_open",
    "tell_attention",
)
"""Every tensor that `RequestReader.read` looks at besides ``input_ids``; one value each."""
TEXT_FIELDS = ("sampling_strategy",)
"""The tensors among them that are strings."""


@dataclass(frozen=True)
class Request:
    """One utterance to decode.

    Attributes:
        streaming: tokens are wanted as they come, not all at the end.
        first_tokens: fewest tokens that a stream's reader can begin with.
        id: what a stop or further text names; empty for a request that has neither.
        echo: ids that stand before the output.
        text_room: most text ids that may follow while it runs; None for a request whose text is whole.
        group_tokens: tokens of each later group of a stream; None for groups that grow.
        silent_tokens: speech codes that the reader drops where they are many in a run, and does not count.
        is_awaited: whether a listener waits for the first tokens of a stream.
        with_rows: whether its reader wants to know what its tokens look at in the text.
    """

    prompt: Prompt
    options: SamplingOptions
    streaming: bool = False
    first_tokens: int = 1
    id: str = ""
    echo: tuple[int, ...] = ()
    text_room: int | None = None
    group_tokens: int | None = None
    silent_tokens: frozenset[int] = frozenset()
    is_awaited: bool = True
    with_rows: bool = False


@dataclass(frozen=True)
class RequestReader:
    """Turns tensors into requests.

    Attributes:
        max_tokens: most new tokens of one request.
        max_sequence_tokens: most positions of prompt and new tokens together.
        engine: name of the one that the requests are for.
        end_of_prompt: text id with which an instruction ends that is fed before text that comes in pieces;
            None for a speech LM without such instructions.
        speaker_values: of the speaker embedding that the speech LM reads; 0 for one that reads none.
        interleaves_text: whether the speech LM takes text between its speech.
        silent_tokens: speech codes of which only the first few of a run are spoken.
    """

    vocabulary: MergedVocabulary
    max_tokens: int
    max_sequence_tokens: int
    engine: str = "torch"
    end_of_prompt: int | None = None
    speaker_values: int = 0
    interleaves_text: bool = True
    silent_tokens: frozenset[int] = frozenset()

    @property
    def takes_spoken(self) -> bool:
        """Whether the engine goes on from tokens that have been spoken before: those with a batch of this
        library do."""
        return self.engine in TAKE_OPEN_TEXT

    @property
    def sees_text(self) -> bool:
        """Whether the engine may tell what tokens look at in the text: those with a batch of this library."""
        return self.engine in TAKE_OPEN_TEXT

    @property
    def serves_adapters(self) -> bool:
        """Whether the engine serves voices with adapters of their own."""
        return self.engine == "torch"

    def read(
        self,
        ids: Sequence[int],
        fields: Mapping[str, Any],
        request_id: str = "",
        speaker: Sequence[float] = (),
    ) -> Request:
        """Read a request.

        Args:
            ids: of the merged vocabulary; those beyond ``input_lengths`` are ignored.
            speaker: embedding of the voice; none where the speech LM reads none, or is to go without.
            fields: values by the names in `FIELDS`; what a request leaves out is missing or None.

        Raises:
            InvalidInput: naming the tensor, what was given and what is accepted.
        """
        given = {name: value for name, value in fields.items() if value is not None}
        ids = self._cut(ids, given.get("input_lengths", len(ids)))
        text_open = given.get("text_open", False)
        if text_open:
            self._check_open(request_id)
        self._check_speaker(speaker)
        prompt = read_prompt(ids, self.vocabulary, text_open, self.end_of_prompt, speaker)
        self._check_lengths(len(ids) + bool(speaker), given.get("request_output_len"))
        self._check_end(given.get("end_id"))
        first_tokens = self._group("first_tokens", given.get("first_tokens", 1))
        group_tokens = given.get("group_tokens")
        streaming = given.get("streaming", False)
        echoed = not streaming and not given.get("exclude_input_in_output", False)
        return Request(
            prompt,
            read_open_options(given) if text_open else read_options(given),
            streaming,
            first_tokens,
            request_id,
            tuple(ids) if echoed else (),
            self.max_sequence_tokens - len(ids) if text_open else None,
            None if group_tokens is None else self._group("group_tokens", group_tokens),
            frozenset() if group_tokens is None else self.silent_tokens,
            with_rows=given.get("tell_attention", False) and self.sees_text,
        )

    def accept(
        self,
        prompt: Prompt,
        sampling: SamplingOptions,
        request_id: str,
        groups: tuple[int, int],
        in_pieces: bool,
        is_awaited: bool,
        with_rows: bool = False,
    ) -> Request:
        """The request of an utterance that is driven in this process.

        Args:
            groups: tokens of the first group and of each later one.
            in_pieces: the text follows while it runs; its length limits do, too.
            is_awaited: a listener waits for its first tokens.
            with_rows: what its tokens look at in the text is wanted.

        Raises:
            InvalidInput: it is too long, or the speech LM takes no text in pieces.
        """
        if in_pieces:
            self._check_open(request_id)
        if prompt.spoken and not self.takes_spoken:
            limit = f"engine {self.engine} begins a text at its beginning"
            raise InvalidInput("spoken_tokens", f"{len(prompt.spoken)} tokens", limit)
        if prompt.adapter and not self.serves_adapters:
            raise InvalidInput("adapter", prompt.adapter, NO_ADAPTERS)
        self._check_speaker(prompt.speaker)
        limits = TokenLimits.of(sampling, MOST_TEXT if in_pieces else len(prompt.text))
        length = num_positions(prompt.segments())
        self._check_lengths(length, limits.max_tokens)
        if in_pieces:
            options = dataclasses.replace(
                sampling, min_tokens=None, max_tokens=None, ceiling=limits.max_tokens
            )
        else:
            options = dataclasses.replace(sampling, **limits._asdict())
        first, later = (min(tokens, limits.max_tokens) for tokens in groups)
        return Request(
            prompt,
            options,
            streaming=True,
            first_tokens=first,
            id=request_id,
            text_room=self.max_sequence_tokens - length if in_pieces else None,
            group_tokens=later,
            silent_tokens=self.silent_tokens,
            is_awaited=is_awaited,
            with_rows=with_rows and self.sees_text,
        )

    def _check_open(self, request_id: str) -> None:
        if self.engine not in TAKE_OPEN_TEXT:
            limit = f"engine {self.engine} takes the text of a request whole"
            raise InvalidInput(
                "text_open", True, f"{limit}; {' and '.join(TAKE_OPEN_TEXT)} take it in pieces"
            )
        if not self.interleaves_text:
            limit = "the checkpoint's speech LM was not trained on text between speech"
            raise InvalidInput("text_open", True, limit)
        if not request_id:
            raise InvalidInput("request_id", request_id, "the id that further text will name")

    def _check_speaker(self, speaker: Sequence[float]) -> None:
        if speaker and len(speaker) != self.speaker_values:
            limit = f"{self.speaker_values} values" if self.speaker_values else "this speech LM reads none"
            raise InvalidInput(SPEAKER, f"{len(speaker)} values", limit)
        if not all(map(math.isfinite, speaker)) or (speaker and not any(speaker)):
            raise InvalidInput(SPEAKER, "NaN, infinity or zeros alone", "the embedding of a voice")

    def _cut(self, ids: Sequence[int], length: int) -> Sequence[int]:
        if not 1 <= length <= len(ids):
            raise InvalidInput("input_lengths", length, f"from 1 to the {len(ids)} ids in input_ids")
        return ids[:length]

    def _check_lengths(self, prompt: int, wanted: int | None) -> None:
        room = self.max_sequence_tokens - prompt
        if room < 1:
            raise InvalidInput("input_ids", f"{prompt} ids", f"fewer than {self.max_sequence_tokens}")
        if wanted is None or not 1 <= wanted <= self.max_tokens:
            raise InvalidInput("request_output_len", wanted, f"from 1 to {self.max_tokens}")
        if wanted > room:
            limit = f"at most {room}, the room that {prompt} input_ids leave"
            raise InvalidInput("request_output_len", wanted, limit)

    def _group(self, field: str, wanted: int) -> int:
        if not 1 <= wanted <= self.max_tokens:
            raise InvalidInput(field, wanted, f"from 1 to {self.max_tokens}")
        return wanted

    def _check_end(self, end_id: int | None) -> None:
        stops = self.vocabulary.stop_ids
        if end_id is not None and end_id not in stops:
            limit = f"one of the stop ids {stops.start} to {stops.stop - 1}, all of which end the speech"
            raise InvalidInput("end_id", end_id, limit)


def read_options(given: Mapping[str, Any]) -> SamplingOptions:
    """Sampling options from values by tensor name.

    Without ``sampling_strategy``, ``runtime_top_k`` and ``runtime_top_p`` mean what they do for TensorRT-LLM:
    0 is no limit, and neither of them given is greedy. With it, the library's defaults apply.

    Raises:
        InvalidInput: a value is out of range.
    """
    options = DEFAULTS | {name: given[tensor] for tensor, name in OPTION_FIELDS.items() if tensor in given}
    if "strategy" not in options:
        options |= _nucleus(options.get("top_k", 0), options.get("top_p", 0.0))
    try:
        return SamplingOptions(**options)
    except InvalidInput as error:
        tensors = {name: tensor for tensor, name in OPTION_FIELDS.items()}
        raise InvalidInput(tensors[error.field], options[error.field], error.limit) from error


def read_open_options(given: Mapping[str, Any]) -> SamplingOptions:
    """Sampling options of a request whose text comes while it runs, see :func:`read_options`.

    ``request_output_len`` is the most of any text; the limits follow from the length of that which comes.
    """
    limits = {"request_output_len": None, "min_tokens": given.get("min_tokens")}
    return dataclasses.replace(read_options({**given, **limits}), ceiling=given["request_output_len"])


def _nucleus(top_k: int, top_p: float) -> dict[str, Any]:
    if top_k == 0 and top_p == 0.0:
        return {"strategy": "greedy", "top_k": 0, "top_p": 1.0}
    return {"strategy": "nucleus", "top_k": top_k, "top_p": 1.0 if top_p == 0.0 else top_p}
