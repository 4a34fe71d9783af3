"""The kernel that draws against its plain twin."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from cosyvoice_runtime.lm.generation import Generation, TokenLimits
from cosyvoice_runtime.lm.kernels.slot_draw import slot_draw
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.torch.slot_draws import SlotTables, SlotWork, draw_plain
from making.architecture import FULL

SPEECH = 61
REMEMBERED = 16
CONFIG = dataclasses.replace(FULL.speech_lm, speech_tokens=SPEECH)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
OPTIONS = [
    SamplingOptions(),
    SamplingOptions(top_k=5, top_p=0.6, temperature=1.4, window=30, tau=0.15),
    SamplingOptions(repetition_penalty=1.3, tau=0.0),
    SamplingOptions("nucleus", top_k=7, top_p=0.7, repetition_penalty=0.8),
    SamplingOptions("nucleus", top_k=0, top_p=0.9),
    SamplingOptions("nucleus", top_k=0, top_p=1.0, temperature=0.6),
    SamplingOptions("greedy", repetition_penalty=1.2),
    SamplingOptions(upstream_min_length_mask=True),
]


def tables_of(sequences: list[Generation]) -> SlotTables:
    tables = SlotTables(CONFIG, len(sequences) + 1, REMEMBERED // 2, DEVICE)
    tables.set(slots_of(sequences), sequences)
    return tables


def slots_of(sequences: list[Generation]) -> Tensor:
    return torch.tensor([sequence.slot for sequence in sequences], device=DEVICE)


def same(first: SlotTables, second: SlotTables) -> None:
    for name in ("counts", "tokens", "history", "seen"):
        assert torch.equal(getattr(first, name), getattr(second, name)), name


@pytest.mark.parametrize(("spread", "ties"), [(0.3, False), (3.0, True), (30.0, False)])
def test_slots_draw_as_the_plain_twin(spread, ties):
    """All options at once, for more ids than a history remembers; some rows rest, some are broken."""
    generator = torch.Generator().manual_seed(int(spread * 10) + ties)
    sequences = []
    for slot, options in enumerate(OPTIONS):
        seed = int(torch.randint(2**62, (), generator=generator))
        limits = TokenLimits(10 * (slot % 3), 1000)
        sequences.append(Generation(CONFIG, dataclasses.replace(options, seed=seed), [3, 4], limits))
        sequences[-1].slot = len(OPTIONS) - slot
    fused, plain = tables_of(sequences), tables_of(sequences)
    slots = slots_of(sequences)
    for step in range(REMEMBERED + 5):
        logits = spread * torch.randn(len(sequences), CONFIG.speech_rows, generator=generator)
        logits[:, SPEECH:] -= spread * 4
        logits = logits.round() if ties else logits
        work = torch.randint(0, 9, (len(sequences),), generator=generator).clamp(max=SlotWork.DRAW)
        work[step % 7] = SlotWork.FILL if step % 10 == 9 else SlotWork.DRAW
        if step % 12 == 11:
            logits[step % 5, 5] = (torch.nan, torch.inf)[step % 2]
        given = logits.to(DEVICE), slots, work.to(DEVICE)
        acting = (given[2] != SlotWork.IDLE) & (plain.counts[slots, -1] != 0)
        expected = draw_plain(*given, plain)
        drawn = slot_draw(*given, fused)
        assert torch.equal(drawn[acting], expected[acting])
        same(fused, plain)
    lives = plain.counts[slots, -1] != 0
    assert 0 < int(lives.sum()) < len(sequences)
