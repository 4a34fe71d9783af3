"""What a server still has in work, by its metrics page."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence

from measuring.page import read_page

IN_PROGRESS = (
    "cosyvoice_inflight_utterances",
    "cosyvoice_lm_active_slots",
    "cosyvoice_lm_waiting_requests",
    "cosyvoice_token2wav_utterances",
    "cosyvoice_token2wav_waiting",
)


async def work_left(page: str, settle_s: float) -> dict[str, float]:
    """The gauges of work in progress that don't come back to zero within ``settle_s``.

    Raises:
        SystemExit: the page lacks one of them.
    """
    until = time.monotonic() + settle_s
    while (left := await asyncio.to_thread(gauges, page, IN_PROGRESS)) and time.monotonic() < until:
        await asyncio.sleep(0.1)
    return left


def gauges(page: str, names: Sequence[str]) -> dict[str, float]:
    """Those of these names that are not zero, with their labels.

    Raises:
        SystemExit: the page lacks one of them.
    """
    text = read_page(page)
    found = re.findall(rf"^((?:{'|'.join(names)})\{{.*\}}) (\S+)$", text, re.MULTILINE)
    missing = [name for name in names if name not in text]
    if missing:
        raise SystemExit(f"{page} has no {', '.join(missing)}")
    return {name: float(value) for name, value in found if float(value)}
