"""The work that a server still has, by its metrics page."""

from __future__ import annotations

import asyncio
import re
import time
import urllib.request
from collections.abc import Sequence

TIMEOUT_S = 10.0
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
    """Metrics of these names that are not zero, with their labels.

    Raises:
        SystemExit: the page lacks one of them.
    """
    text = read_page(page)
    found = re.findall(rf"^((?:{'|'.join(names)})\{{.*\}}) (\S+)$", text, re.MULTILINE)
    missing = [name for name in names if name not in text]
    if missing:
        raise SystemExit(f"{page} has no {', '.join(missing)}")
    return {name: float(value) for name, value in found if float(value)}


def read_page(url: str) -> str:
    """Text of a page, which no proxy of the environment is asked for.

    Raises:
        OSError: there is no answer.
    """
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=TIMEOUT_S) as page:
        return str(page.read().decode())
