"""How far an engine's greedy tokens are from the best ones, by the library's own network."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import takewhile

import torch

from cosyvoice_runtime.lm import FinishReason, Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.engine import LmEngine
from cosyvoice_runtime.lm.prompt import PromptSegment, Table
from cosyvoice_runtime.lm.torch.decoder import generate
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM


@dataclass(frozen=True)
class Spoken:
    """Tokens of an engine, and why they ended."""

    tokens: list[int]
    finish_reason: FinishReason


@dataclass(frozen=True)
class Agreement:
    """
    Attributes:
        tokens: compared, the stop id included.
        equal: tokens before the first that differs from the network's own.
        worst: the most that the network preferred another token to one of these, given those before it; in
            logits, 0 if all are the best.
    """

    tokens: int
    equal: int
    worst: float


def speak(engine: LmEngine, prompts: Sequence[Prompt], options: SamplingOptions) -> list[Spoken]:
    """All prompts at a time, as far as there are slots.

    Raises:
        CosyVoiceError: the engine refused a prompt or failed on one.
    """
    waiting = list(enumerate(prompts))
    running: dict[Hashable, int] = {}
    spoken: dict[int, list[int]] = {number: [] for number, _ in waiting}
    reasons: dict[int, FinishReason] = {}
    while waiting or running:
        while waiting and len(running) < engine.slots:
            number, prompt = waiting.pop(0)
            running[engine.add(prompt, options)] = number
        for row in engine.step():
            if row.error is not None:
                raise row.error
            spoken[running[row.handle]] += row.tokens
            if row.finish_reason is not None:
                reasons[running.pop(row.handle)] = row.finish_reason
    return [Spoken(spoken[number], reasons[number]) for number in range(len(prompts))]


def agreement(lm: SpeechLM, prompt: Prompt, options: SamplingOptions, spoken: Spoken) -> Agreement:
    """Compare greedy tokens with what the network would have said, and judge each where it stands.

    Args:
        options: as the engine was given, without a minimum length or a repetition penalty.
    """
    own, _ = generate(lm, prompt, options)
    equal = len(list(takewhile(bool, (a == b for a, b in zip(own, spoken.tokens, strict=False)))))
    gaps = _gaps(lm, prompt, spoken)
    return Agreement(len(gaps), equal, max(gaps, default=0.0))


@torch.inference_mode()
def _gaps(lm: SpeechLM, prompt: Prompt, spoken: Spoken) -> list[float]:
    """By how much the best logit exceeds that of each token, and of every stop id if one followed."""
    fed = prompt.segments()
    start = len(lm.embed(fed)) - 1
    embeddings = lm.embed([*fed, PromptSegment(Table.SPEECH, spoken.tokens)])
    length = len(embeddings)
    cache = KVCache(lm.config, 1, length, lm.device, lm.dtype).view(0, 1)
    positions = torch.arange(length, device=lm.device)[None]
    logits = lm.logits(lm(embeddings[None], positions, cache, length)[0, start:])
    tokens = torch.tensor(spoken.tokens, dtype=torch.int64, device=lm.device)
    taken = logits[:-1].gather(1, tokens[:, None])[:, 0]
    if spoken.finish_reason is FinishReason.STOP:
        taken = torch.cat([taken, logits[-1:, lm.config.eos_id :].amax(dim=1)])
    gaps: list[float] = (logits[: len(taken)].amax(dim=1) - taken).tolist()
    return gaps
