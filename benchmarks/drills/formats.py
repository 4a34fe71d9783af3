"""Files with state, and the times of words, that go on from another server."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO

import av
import numpy as np

from drills.deaths import kill_two
from drills.fleet import Fleet
from drills.front import Front
from drills.listeners import TEXT, Listener, Samples, difference
from drills.outcome import Outcome, resumes
from drills.waiting import wait_until
from drills.wires import timed_words

ORDER = ("mp3", "opus", "words", "opus", "words", "mp3")
"""By round robin each of three servers has two kinds, and each kind two servers: if two of them are killed,
each kind is cut at least once."""
FIRST_AUDIO = "cosyvoice_front_first_audio_seconds_count"
Heard = tuple[Samples, list[tuple[str, float, float]]]
LOUDEST = 32767
MOST_APART = 0.5
"""A share of the sound, both as root mean squares. A coder that rounds otherwise makes up to 0.2, one sample
too many more than 1."""


def while_two_servers_die(fleet: Fleet, fronts: Sequence[Front]) -> Outcome:
    """Whether files and times of words are those of streams that nothing happens to."""
    front = fronts[0]
    uncut = {kind: hear(front, kind) for kind in dict.fromkeys(ORDER)}
    fleet.wait_for_silence()
    before, begun = resumes(fronts), front.number(FIRST_AUDIO)
    with ThreadPoolExecutor(len(ORDER)) as pool:
        streams = []
        for count, kind in enumerate(ORDER, 1):
            streams.append(pool.submit(hear, front, kind))
            wait_until(partial(_speak, fleet, count), "a stream does not begin")
        wait_until(lambda: front.number(FIRST_AUDIO) == begun + len(ORDER), "somebody hears nothing")
        kill_two(fleet)
        heard = [stream.result() for stream in streams]
    outcome = Outcome(requests=len(ORDER), resumed=resumes(fronts) - before)
    for kind, (samples, words) in zip(ORDER, heard, strict=True):
        compare = difference if kind == "words" else unlikeness
        if wrong := compare(samples, uncut[kind][0]):
            outcome.faults.append(f"{kind}: {wrong}")
        if words != uncut[kind][1]:
            outcome.faults.append(f"{kind}: {words} in place of {uncut[kind][1]}")
    return outcome


def unlikeness(heard: Samples, uncut: Samples) -> str | None:
    """Say how two files differ; None where it is what a coder makes of rounding."""
    if len(heard) != len(uncut):
        return f"{len(heard)} samples in place of {len(uncut)}"
    apart, whole = (np.sqrt(np.mean(np.square(each.astype(float)))) for each in (heard - 1.0 * uncut, uncut))
    return f"apart by {apart / whole:.2f} of the sound" if apart > MOST_APART * whole else None


def _speak(fleet: Fleet, count: int) -> bool:
    """Whether so many utterances are in progress."""
    return sum(fleet.speaking) == count


def hear(front: Front, kind: str) -> Heard:
    """The samples of a kind of stream, and its words with their times, if it has such."""
    if kind == "words":
        return timed_words(front, (TEXT[:50], TEXT[50:]))
    return decoded(Listener(front, TEXT, response_format=kind).body), []


def decoded(file: bytes) -> Samples:
    """The samples of a file, at whatever rate it has."""
    with av.open(BytesIO(file), "r") as container:
        frames = [frame.to_ndarray() for frame in container.decode(audio=0)]
    return np.round(np.concatenate(frames, axis=1)[0] * LOUDEST).astype(np.int16)
