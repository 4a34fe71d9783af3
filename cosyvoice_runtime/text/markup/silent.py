"""Characters that nobody says: emoji, ornaments, marks of lists, boxes; and arrows, which are a pause."""

from __future__ import annotations

import re

_EMOJI = (
    "\U0001f000-\U0001f0ff\U0001f10d-\U0001f10f\U0001f16d-\U0001f171\U0001f17e\U0001f17f\U0001f18e"
    "\U0001f191-\U0001f1ff\U0001f201-\U0001f64f\U0001f680-\U0001faff"
    "\u2600-\u266c\u2670-\u2775\u2795-\u2797\u27b0\u27bf\u2934\u2935\u2b05-\u2b55\u231a\u231b\u23e9-\u23fa"
)
"""Circled numbers among the ornaments (U+2776 to U+2793) are numbers, and U+266D to U+266F are tones."""
_OF_SCREENS = "\u24d8\u22ee\u205d\u2302\u2315\u2399\u238b\u23cf"
_ORNAMENTS = "\u2022\u2023\u2043\u2219\u25a0-\u25ff\u25e6\u2500-\u259f\u2020\u2021\ufffc\ufffd"
_ARROWS = "\u2190-\u21ff\u27a1\u2794\u2798-\u27af\u27b1-\u27be\u27f0-\u27ff\u2b00-\u2b04"
_JOINED = "\u200d\ufe0e\ufe0f\u20e3\U000e0020-\U000e007f"

SILENT = _EMOJI + _ORNAMENTS + _OF_SCREENS + _ARROWS
"""Source of a character class of all of them."""
EMOJI = re.compile(f"[{_EMOJI}]")
ARROW = re.compile(f"[▲▼{_ARROWS}]")
RUN = re.compile(f"[{SILENT}][{SILENT}{_JOINED}]*")
"""Finds one and what stands close to it."""
