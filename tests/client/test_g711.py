"""The telephone's encoding, against what ITU-T says."""

from __future__ import annotations

import numpy as np
import pytest

from cosyvoice_client import g711

ALL = np.arange(-(1 << 15), 1 << 15).astype(np.int16)


def ulaw_of_g191(sample: int) -> int:
    """The code as ITU-T G.191 computes it, of 14 bits with a bias of 33."""
    magnitude = min((~sample if sample < 0 else sample) // 4 + 33, 0x1FFF)
    segment = magnitude.bit_length() - 5
    code = (8 - segment) << 4 | 15 - (magnitude >> segment & 15)
    return code if sample < 0 else code | 0x80


def alaw_of_g191(sample: int) -> int:
    """The same for the A-law, of 12 bits."""
    code = magnitude = (~sample if sample < 0 else sample) // 16
    if magnitude >= 16:
        segment = magnitude.bit_length() - 4
        code = segment << 4 | magnitude >> segment - 1 & 15
    return (code if sample < 0 else code | 0x80) ^ 0x55


@pytest.mark.parametrize(("law", "expected"), [("ulaw", ulaw_of_g191), ("alaw", alaw_of_g191)])
def test_every_sample_has_its_code(law, expected):
    assert g711.encode(law, ALL) == bytes(expected(int(sample)) for sample in ALL)


@pytest.mark.parametrize(
    ("law", "expected", "full_scale", "overload_db"),
    [
        ("ulaw", "1e 0b 0b 1e 9e 8b 8b 9e", 4 * 8159, 3.17),
        ("alaw", "34 21 21 34 b4 a1 a1 b4", 8 * 4096, 3.14),
    ],
)
def test_digital_milliwatt(law, expected, full_scale, overload_db):
    """A sine of 1 kHz at 0 dBm0 is the sequence of G.711's tables 5 and 6."""
    sine = full_scale * 10 ** (-overload_db / 20) * np.sin(2 * np.pi * (np.arange(8) + 0.5 + 4) / 8)
    assert g711.encode(law, np.rint(sine).astype(np.int16)).hex(" ") == expected
