"""Codes in small letters, which are spelled in every language."""

from __future__ import annotations

import re

INITIALS = re.compile(
    r"(?:(?<=[=(\[,:][\"'])|(?<=[=(\[,:] [\"']))(?!hmm|shh|psst|brr|pfft|tsk)[b-df-hj-np-tv-xz]{2,4}(?=[\"'])"
    r"|(?<![A-Za-z])utf(?=[-_]?(?:8|16|32)(?![0-9]))"
)
"""Letters of a code in small letters, which no word is: ``encoding="gbk"``, ``utf-8``."""
