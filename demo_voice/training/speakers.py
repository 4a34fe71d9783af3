"""The voices that read the training text: free synthesizers of Debian's packages flite and espeak-ng."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from cosyvoice_runtime.audio.resample import resample

RATE = 16_000
SYNTHESIZERS = Path(os.environ.get("SYNTHESIZERS", "/usr"))
"""Where ``bin/flite`` and ``bin/espeak-ng`` lie, with their libraries (see ``pack_synthesizers.sh``)."""


@dataclass(frozen=True)
class Speaker:
    """A voice.

    Attributes:
        engine: ``flite`` or ``espeak``.
        voice: the engine's name of it.
        warp: play the speech faster by this factor, after it was made slower by it: another vocal tract and
            pitch at the same tempo.
        share: utterances, relative to the others.
    """

    name: str
    engine: str
    voice: str
    warp: float = 1.0
    share: float = 0.8


def _flite(voice: str, share: float, *warps: float) -> list[Speaker]:
    warped = [Speaker(f"{voice}-{warp:g}", "flite", voice, warp) for warp in warps]
    return [Speaker(voice, "flite", voice, share=share), *warped]


def _espeak(*voices: str, warp: float = 1.0) -> list[Speaker]:
    return [Speaker(f"espeak-{voice}", "espeak", voice, warp) for voice in voices]


TRAINING = (
    *_flite("slt", 6.0, 0.88, 1.12),
    *_flite("rms", 5.0, 0.9, 1.12),
    *_flite("awb", 3.0, 0.88, 1.14),
    *_flite("kal16", 2.0, 1.1),
    *_espeak("en-us+m3", "en-us+f2", "en-us+m7", "en-us+f4", "en-us+m1", "en-us+Annie"),
    *_espeak("en-us+f5", "en-gb-x-rp+m5", "en-us+Andy", "en-gb-scotland+m4", "en-us+linda", "en-us+max"),
)
HELD_OUT = _espeak("en-us+f1", "en-us+m2", "en-us+f3", "en-us+adam", "en-us+steph", "en-us+m6")


@dataclass(frozen=True, eq=False)
class Utterance:
    """Mono 16 kHz float32 samples and the phones that flite's front end reads in the text."""

    samples: NDArray[np.float32]
    phones: list[str]


def speak(speaker: Speaker, text: str) -> Utterance:
    """Let a speaker read a text."""
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        if speaker.engine == "flite":
            stretch = ["--setf", f"duration_stretch={speaker.warp}"]
            phones = _run("flite", "-voice", speaker.voice, *stretch, "-ps", "-t", text, "-o", file.name)
        else:
            phones = _run("flite", "-voice", "kal16", "-ps", "-t", text, "-o", "none")
            _run("espeak-ng", "-v", speaker.voice, "-s", "165", "-w", file.name, text)
        samples, rate = soundfile.read(file.name, dtype="int16")
    signal = samples.astype(np.float32) / 32768
    played_at = rate if speaker.warp == 1 else round(rate * speaker.warp, -2)  # round rates resample fast
    return Utterance(resample(signal, int(played_at), RATE), phones.split())


def _run(program: str, *arguments: str) -> str:
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(SYNTHESIZERS / "lib"),
        "ESPEAK_DATA_PATH": str(SYNTHESIZERS),
    }
    if Path("/usr") == SYNTHESIZERS:
        environment = dict(os.environ)
    command = [str(SYNTHESIZERS / "bin" / program), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout
