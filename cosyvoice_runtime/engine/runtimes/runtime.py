"""Networks that are ready, whatever they run on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np

from cosyvoice_runtime.flow.voice_flow import FlowPrompt
from cosyvoice_runtime.gpu.partitions.shared_gpu import Later
from cosyvoice_runtime.token2wav.any_token2wav import AnyToken2Wav

logger = logging.getLogger(__name__)

HURRIED_BLOCKS = 2
"""Of a hurried chunk at most: a first one ends with the first block of the flow that has enough of it."""


@dataclass(frozen=True)
class TurnsBeside:
    """What computes turns beside others, on another part of the GPU.

    Attributes:
        token2wav: the same networks and pages, in the part's stream.
        rows: most utterances in a turn.
        at_launch: context in which its turns are launched.
        hurried: they are of chunks that somebody waits for or soon will: first and second ones.
        of_few: for when few utterances are in progress, or for when many are; None: always.
    """

    token2wav: AnyToken2Wav
    rows: int
    at_launch: Callable[[], AbstractContextManager[object]]
    hurried: bool = False
    of_few: bool | None = None


@dataclass(frozen=True)
class WaveRuntime:
    """What runs token2wav on a device, and how a scheduler treats it.

    Attributes:
        name: of what runs the networks, as the setting ``backend`` has it.
        rows: most utterances in a turn.
        on_gpu: many short rows cost little more than a few.
        at_work: context that the thread which launches turns works in.
        turns_at_once: turns that may be under way: the device computes them by itself, in their order.
        turns_overlap: one begins beside the end of the one before.
        of_few: as of :class:`TurnsBeside`.
        beside: for turns at the same time.
        after_crowd: gives back what a crowd made it take, whatever is under way; None where nothing is.
        shares_memory: with the other schedulers of this process: pages and what a crowd made them take.
        later: makes ready what computes turns while few utterances are in progress; until then many are.
    """

    name: str
    token2wav: AnyToken2Wav
    rows: int
    on_gpu: bool = False
    at_work: Callable[[], AbstractContextManager[object]] = nullcontext
    turns_at_once: int = 1
    turns_overlap: bool = False
    of_few: bool | None = None
    beside: Sequence[TurnsBeside] = ()
    after_crowd: Callable[[], None] | None = None
    shares_memory: bool = False
    later: Later | None = None


def warm_up(token2wav: AnyToken2Wav, rows: int) -> None:
    """Speak ``rows`` short utterances, prompt and both kinds of chunk included; nothing stays."""
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
