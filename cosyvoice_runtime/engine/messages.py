"""The messages of cosyvoice2 and the engine about one utterance.

The caller sends an :class:`Order`, then its segments, text of segments that comes in pieces, and the voice,
or a verifier's verdict, if the engine asks for it. The engine sends chunks, a sign of life each second, and
in the end ``last``, with a ``status`` and a ``message`` where that is an error. A caller that hangs up has
cancelled the utterance.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.engine.frames import Array, Frame, read_tensors, write_frame
from cosyvoice_runtime.engine.utterance.hop import HopPolicy
from cosyvoice_runtime.engine.utterance.request import AudioChunk, Utterance
from cosyvoice_runtime.engine.utterance.verdict import Misspoken, Verification
from cosyvoice_runtime.engine.utterance.verification import Checks
from cosyvoice_runtime.engine.utterance.verifier import Judge
from cosyvoice_runtime.errors import StageError, StageSilentError, status_of
from cosyvoice_runtime.lm.generation import FinishReason
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.text_segment import CheckedText, SegmentSink, SentWord, Sound
from cosyvoice_runtime.voice.voice import Voice

ORDER, BEGIN, PAUSE, TEXT, END, DONE, VOICE = "order", "begin", "pause", "text", "end_text", "done", "voice"
"""Keys of a header; each stands in messages of one kind."""
JUDGE, VERDICT = "judge", "verdict"
"""Keys of the engine's question about a segment's sound, and of the answer."""
SIGN_OF_LIFE_S = 1.0
"""Time between two signs of life of the engine."""
MOST_MESSAGE = 1 << 16


@dataclass(frozen=True)
class Order:
    """An utterance, and how the engine speaks it.

    Attributes:
        sample_rate: samples per second of the chunks.
        timeout_s: longest silence of a network.
        text_timeout_s: longest silence of the speech LM while more text may come.
        trace: the request's name in the trace of utterances, empty while there is none.
        checks: of segments that may be drawn again; None where nobody asks for that. The caller is asked for
            the judge's verdicts.
    """

    utterance: Utterance
    hop: HopPolicy
    sample_rate: int
    timeout_s: float = 30.0
    text_timeout_s: float = 60.0
    trace: str = ""
    checks: Checks | None = None


def order_frame(order: Order) -> bytes:
    said = {field.name: getattr(order, field.name) for field in dataclasses.fields(order)}
    if order.checks is not None:
        said["checks"] = order.checks._replace(judge=None), order.checks.judge is not None
    hop = {field.name: getattr(order.hop, field.name) for field in dataclasses.fields(order.hop)}
    return write_frame({ORDER: {**said, "hop": hop, "utterance": dataclasses.asdict(order.utterance)}})


def read_order(said: Mapping[str, Any], judge: Judge | None = None) -> Order:
    """The order that a message brings.

    Args:
        judge: asks the caller, if that has a verifier.
    """
    utterance = dict(said["utterance"])
    utterance["sampling"] = SamplingOptions(**utterance["sampling"])
    utterance["sound"] = Sound(*utterance["sound"])
    checks = None
    if said["checks"] is not None:
        fields, is_judged = said["checks"]
        checks = Checks(*fields)._replace(judge=judge if is_judged else None)
    read = {"utterance": Utterance(**utterance), "hop": HopPolicy(**said["hop"]), "checks": checks}
    return Order(**{**said, **read})


def begin_frame(
    prompt: Prompt, in_pieces: bool, sound: Sound | None, checked: CheckedText | None = None
) -> bytes:
    said = {field.name: _plain(getattr(prompt, field.name)) for field in dataclasses.fields(prompt)}
    return write_frame({BEGIN: said, "in_pieces": in_pieces, "sound": sound, "checked": checked})


def judge_frame(samples: Floats, rate: int, text: str) -> bytes:
    return write_frame({JUDGE: text, "rate": rate}, {"samples": samples})


async def verdict_frame(frame: Frame, checks: Checks | None) -> bytes:
    """The answer to a :func:`judge_frame`; what the judge raises is raised."""
    judge = checks and checks.judge
    assert judge is not None, "the engine asks where the order has a judge"
    samples = read_tensors(frame)["samples"].copy()  # The verifier may write on them.
    verdict = await judge(samples, frame.header["rate"], frame.header[JUDGE])
    return write_frame({VERDICT: verdict if isinstance(verdict, bool) else list(verdict)})


def voice_frame(voice: Voice) -> bytes:
    tensors = {"tokens": voice.speech_tokens, "mel": voice.prompt_mel, "speaker": voice.speaker_embedding}
    return write_frame({VOICE: True}, tensors)


def take_text(frame: Frame, segments: SegmentSink) -> None:
    """Give the segments the text that a message brings, if any."""
    said = frame.header
    if BEGIN in said:
        sound, checked = said["sound"], said["checked"]
        how = sound and Sound(*sound), checked and _checked(checked)
        segments.begin(Prompt(**said[BEGIN]), bool(said["in_pieces"]), *how)
    elif PAUSE in said:
        segments.pause(said[PAUSE])
    elif TEXT in said:
        segments.add(said[TEXT])
    elif END in said:
        segments.end()
    elif DONE in said:
        segments.done()


def _checked(said: Sequence[Any]) -> CheckedText:
    text = CheckedText(*said)
    return text._replace(words=[SentWord(*word) for word in text.words])


def chunk_frame(chunk: AudioChunk) -> bytes:
    reason = None if chunk.finish_reason is None else chunk.finish_reason.value
    said = {
        "segment": chunk.segment,
        "reason": reason,
        "pause": chunk.is_pause,
        "spoken": chunk.spoken_tokens,
        "earlier_s": chunk.earlier_s,
        "trimmed_s": chunk.trimmed_s,
        "reached": chunk.spoken_characters,
        "verification": None if chunk.verification is None else dataclasses.astuple(chunk.verification),
    }
    tensors: dict[str, Array] = {"samples": chunk.samples}
    if chunk.rows is not None:
        tensors |= {"rows": chunk.rows, "are_spoken": np.array(chunk.are_spoken, np.bool_)}
    return write_frame(said, tensors)


def read_chunk(frame: Frame, sample_rate: int) -> AudioChunk:
    reason = frame.header["reason"]
    tensors = read_tensors(frame)
    ended = None if reason is None else FinishReason(reason)
    said = frame.header
    return AudioChunk(
        tensors["samples"],
        sample_rate,
        said["segment"],
        ended,
        is_pause=said["pause"],
        spoken_tokens=said["spoken"],
        earlier_s=said["earlier_s"],
        trimmed_s=tuple(said["trimmed_s"]),
        spoken_characters=said["reached"],
        verification=said["verification"] and _verification(*said["verification"]),
        rows=tensors.get("rows"),
        are_spoken=tensors["are_spoken"].tolist() if "are_spoken" in tensors else (),
    )


def _verification(findings: Sequence[Sequence[Any]], *others: Any) -> Verification:
    return Verification([Misspoken(*each) for each in findings], *others)


def end_frame(error: Exception | None = None) -> bytes:
    if error is None:
        return write_frame({"last": True})
    silent = isinstance(error, StageSilentError)
    said = {"status": status_of(error), "message": str(error)[:MOST_MESSAGE], "silent": silent}
    return write_frame({"last": True, **said})


def read_error(said: Mapping[str, Any]) -> Exception | None:
    """The error that ended an utterance, if there was one."""
    if "status" not in said:
        return None
    message = said.get("message", "no details")
    return StageSilentError(message) if said.get("silent") else StageError(message, said["status"])


def silence_of(model: str, timeout_s: float) -> StageSilentError:
    """The error of a model that has said nothing for so long."""
    return StageSilentError(f"{model} sent nothing for {timeout_s:g} s; try again later")


def _plain(values: Sequence[Any]) -> list[Any]:
    return np.asarray(values).tolist()
