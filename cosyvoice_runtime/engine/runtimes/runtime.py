"""A device's networks, ready to compute, and how many pages of finished chunks fit into its memory."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.flow.voice_flow import FlowPrompt
from cosyvoice_runtime.gpu.partitions.shared_gpu import Later
from cosyvoice_runtime.token2wav.token2wav import AnyToken2Wav

logger = logging.getLogger(__name__)


CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
MIB = 2**20
TYPICAL_S = 15.0
"""Seconds of a typical reference and utterance, by which the log tells how many utterances the pages hold."""


def page_count(config: FlowConfig, page_bytes: int, room: int, most: int) -> int:
    """Pages that fit into ``room`` bytes, at most ``most``."""
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
        logger.warning(
            "flow: no page fits into the memory, and every chunk recomputes those before it; "
            "token2wav.page_format=int8, fewer tensorrt_llm.max_slots or token2wav.max_batch=1 leave more"
        )
    return count


def host_room(share: float) -> int:
    """Bytes for pages: a share of the host's memory."""
    return int(share * machine_memory())


def machine_memory() -> int:
    """Bytes of this machine or container."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = CGROUP_LIMIT.read_text().strip() if CGROUP_LIMIT.exists() else "max"
    return machine if limit == "max" else min(machine, int(limit))


URGENT_BLOCKS = 2
"""Most blocks of an urgent chunk: a first chunk ends with the first block that has enough frames."""


@dataclass(frozen=True)
class ConcurrentNetworks:
    """Networks that compute batches at the same time as others, on another partition of the GPU.

    Attributes:
        token2wav: the same networks and pages, in the partition's stream.
        rows: most utterances in a batch.
        at_launch: context in which batches are launched.
        urgent: whether they compute first and second chunks, whose listeners wait or soon will.
        of_few: whether they work while few utterances are in progress, or while many are; None for always.
    """

    token2wav: AnyToken2Wav
    rows: int
    at_launch: Callable[[], AbstractContextManager[object]]
    urgent: bool = False
    of_few: bool | None = None


@dataclass(frozen=True)
class WaveRuntime:
    """Token2wav on a device, and how a scheduler treats it.

    Attributes:
        name: the setting ``backend``.
        rows: most utterances in a batch.
        on_gpu: whether many short rows cost little more than a few.
        at_work: context of the thread that launches batches.
        batches_at_once: most batches under way; the device computes them in their order.
        batches_overlap: whether a batch begins while the one before ends.
        of_few: when the device's own batches are computed, as of :class:`ConcurrentNetworks`.
        concurrent: networks for batches at the same time.
        trim: gives back memory that many utterances took, whatever is under way; None where none is.
        shares_memory: whether pages and what ``trim`` gives back are those of other schedulers as well.
        later: prepares networks for few utterances; until then those for many compute.
    """

    name: str
    token2wav: AnyToken2Wav
    rows: int
    on_gpu: bool = False
    at_work: Callable[[], AbstractContextManager[object]] = nullcontext
    batches_at_once: int = 1
    batches_overlap: bool = False
    of_few: bool | None = None
    concurrent: Sequence[ConcurrentNetworks] = ()
    trim: Callable[[], None] | None = None
    shares_memory: bool = False
    later: Later | None = None


class WideNetworks(NamedTuple):
    """Flow and vocoder in float32.

    Attributes:
        at_work: the context in which a thread computes with them.
        give_back: returns the memory of what was computed.
    """

    token2wav: AnyToken2Wav
    at_work: Callable[[], AbstractContextManager[object]]
    give_back: Callable[[], None]


def warm_up(token2wav: AnyToken2Wav, rows: int) -> None:
    """Speak ``rows`` short utterances, with a prompt and both kinds of chunk, and free them."""
    started = time.monotonic()
    flow, config = token2wav.flow, token2wav.flow.flow.config
    length = config.encoder.chunk_tokens + config.lookahead_tokens
    prompt = FlowPrompt(
        tokens=np.zeros(length, np.int64),
        mel=np.zeros((config.frames(length), config.mel_bins), np.float32),
        speaker=np.ones(config.speaker_dim, np.float32),
    )
    prefix = flow.prefix(prompt)
    states = [token2wav.open(prefix, noise_seed=0) for _ in range(rows)]
    for tokens, last in (([0] * length, False), ([0], True)):
        for state in states:
            token2wav.push(state, tokens, last)
        token2wav.advance(states)
    for state in states:
        token2wav.close(state)
    flow.close(prefix)
    flow.forget_counts()
    logger.info("warm after %.1f s", time.monotonic() - started)
