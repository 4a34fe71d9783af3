"""When flite says each word: its own times, read out of its library."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

LANGUAGE = ("libflite.so.1", "libflite_cmulex.so.1", "libflite_usenglish.so.1")
POINTER, TEXT = ctypes.c_void_p, ctypes.c_char_p
FIRST_SEGMENT = b"daughter1.R:SylStructure.daughter1.daughter1.R:Segment.p.end"
LAST_SEGMENT = b"daughtern.R:SylStructure.daughtern.daughtern.R:Segment.end"
"""Paths from a token of the text to where its first phone begins and its last one ends (festival's utterance
structure, http://www.festvox.org/docs/manual-2.4.0/festival_14.html)."""


class Wave(ctypes.Structure):
    """``cst_wave`` of flite's ``cst_wave.h``."""

    _fields_ = [
        ("type", TEXT),
        ("rate", ctypes.c_int),
        ("count", ctypes.c_int),
        ("channels", ctypes.c_int),
        ("samples", ctypes.POINTER(ctypes.c_short)),
    ]


class Reading(NamedTuple):
    """
    Attributes:
        samples: mono float32 in [-1, 1].
        words: each with its beginning and end in seconds, cut at spaces.
    """

    samples: npt.NDArray[np.float32]
    rate: int
    words: list[tuple[str, float, float]]


class Flite:
    """One of flite's voices.

    Args:
        libraries: folder of its shared libraries.
        voice: such as ``slt``.
    """

    def __init__(self, libraries: Path, voice: str) -> None:
        names = (*LANGUAGE, f"libflite_cmu_us_{voice}.so.1")
        loaded = [ctypes.CDLL(str(libraries / name), mode=ctypes.RTLD_GLOBAL) for name in names]
        self._flite = loaded[0]
        self._flite.flite_init()
        register = getattr(loaded[-1], f"register_cmu_us_{voice}")
        register.restype, register.argtypes = POINTER, [TEXT]
        self._voice = register(None)

    def read(self, text: str) -> Reading:
        utterance = self._call("flite_synth_text", POINTER, text.encode(), self._voice)
        wave = self._call("utt_wave", ctypes.POINTER(Wave), utterance).contents
        samples = np.ctypeslib.as_array(wave.samples, (wave.count,)).astype(np.float32) / 32768
        reading = Reading(samples, wave.rate, list(self._words(utterance)))
        self._call("delete_utterance", None, utterance)
        return reading

    def _words(self, utterance: int) -> Any:
        relation = self._call("utt_relation", POINTER, utterance, b"Token")
        token = self._call("relation_head", POINTER, relation)
        while token:
            parts = [
                self._call("ffeature_string", TEXT, token, name)
                for name in (b"prepunctuation", b"name", b"punc")
            ]
            times = [
                self._call("ffeature_float", ctypes.c_float, token, path)
                for path in (FIRST_SEGMENT, LAST_SEGMENT)
            ]
            yield b"".join(parts).decode(), *times
            token = self._call("item_next", POINTER, token)

    def _call(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self._flite, name)
        function.restype = result
        function.argtypes = [TEXT if isinstance(argument, bytes) else POINTER for argument in arguments]
        return function(*arguments)
