"""How many pages of finished chunks there is room for."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from cosyvoice_runtime.checkpoint.config_flow import FlowConfig

logger = logging.getLogger(__name__)

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
MIB = 2**20
TYPICAL_S = 15.0
"""A reference of five seconds and ten seconds of speech, to tell what the pages are good for."""


def page_count(config: FlowConfig, page_bytes: int, room: int, most: int) -> int:
    """Pages that fit into so many bytes, at most ``most``."""
    count = min(most, room // page_bytes)
    seconds = count * config.encoder.chunk_tokens / config.token_rate
    logger.info(
        "flow: %d pages of %.1f MiB hold %.0f s of prompts and speech, about %d utterances of %.0f s",
        count,
        page_bytes / MIB,
        seconds,
        seconds // TYPICAL_S,
        TYPICAL_S,
    )
    if count == 0:
        logger.warning("flow: no page fits into the memory; every chunk recomputes those before it")
    return count


def host_room(share: float) -> int:
    """Bytes for pages: a share of the host's memory."""
    return int(share * machine_memory())


def machine_memory() -> int:
    """Bytes of this machine or container."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = CGROUP_LIMIT.read_text().strip() if CGROUP_LIMIT.exists() else "max"
    return machine if limit == "max" else min(machine, int(limit))
