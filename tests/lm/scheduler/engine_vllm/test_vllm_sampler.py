"""The logits processor follows vLLM's batch, and tells what it can not follow."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from coded_vllm import SPEECH_TOKENS

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.lm_rows import recorded
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.lm.engines.vllm import KEY
from cosyvoice_runtime.lm.engines.vllm.engine import VllmUtterance
from cosyvoice_runtime.lm.generation import TokenLimits
from making.architecture import TINY
from vllm_fake.processors import BatchUpdate, MoveDirectionality

ROWS = 6592
CONFIG: SpeechLMConfig = TINY.speech_lm


class Batch:
    """vLLM's side: parameters of requests, and lists of their output ids."""

    def __init__(self) -> None:
        from cosyvoice_runtime.lm.engines.vllm.sampler import SpeechSampler

        hf_config = SimpleNamespace(**{KEY: recorded(CONFIG)})
        vllm_config = SimpleNamespace(model_config=SimpleNamespace(hf_config=hf_config))
        self.sampler = SpeechSampler(vllm_config, torch.device("cpu"), False)
        self.outputs: list[list[int]] = []

    def request(self, **options) -> tuple:
        utterance = VllmUtterance(SamplingOptions(seed=1, **options), (), TokenLimits(0, 100))
        self.outputs.append([])
        return SimpleNamespace(extra_args=utterance.as_extra_args()), None, self.outputs[-1]

    def update(self, size: int, removed=(), added=(), moved=()) -> None:
        self.sampler.update_state(BatchUpdate(size, removed, added, moved))

    def draw(self, logits: torch.Tensor, outputs: list[list[int]]) -> list[int]:
        """A step: the ids drawn, which become output of these requests, by place."""
        drawn = self.sampler.apply(logits.clone())
        assert (drawn.isfinite().sum(dim=1) == 1).all()
        ids = drawn.argmax(dim=1).tolist()
        for output, id_ in zip(outputs, ids, strict=True):
            output.append(id_)
        return ids


@pytest.fixture
def batch(vllm) -> Batch:
    return Batch()


def certain(*ids: int) -> torch.Tensor:
    return torch.zeros(len(ids), ROWS).scatter_(1, torch.tensor(ids)[:, None], 50.0)


def penalised(batch: Batch) -> tuple:
    """A request that does not repeat an id as long as another one is nearly as likely."""
    return batch.request(strategy="greedy", repetition_penalty=100.0)


def two_best(*pairs: tuple[int, int]) -> torch.Tensor:
    logits = torch.zeros(len(pairs), ROWS)
    for row, (best, second) in zip(logits, pairs, strict=True):
        row[best], row[second] = 50.0, 49.0
    return logits


def test_records_go_with_their_requests_when_places_are_swapped(batch):
    first, second = penalised(batch), penalised(batch)
    batch.update(2, added=[(0, *first), (1, *second)])
    assert batch.draw(two_best((10, 11), (20, 21)), [first[2], second[2]]) == [10, 20]
    batch.update(2, moved=[(0, 1, MoveDirectionality.SWAP)])
    assert batch.draw(two_best((20, 21), (10, 11)), [second[2], first[2]]) == [21, 11]


def test_last_request_moves_into_a_place_that_fell_vacant(batch, kept):
    first, second = penalised(batch), penalised(batch)
    batch.update(2, added=[(0, *first), (1, *second)])
    batch.draw(two_best((10, 11), (20, 21)), [first[2], second[2]])
    batch.update(1, removed=[0], moved=[(1, 0, MoveDirectionality.UNIDIRECTIONAL)])
    assert batch.draw(two_best((20, 21)), [second[2]]) == [21]
    assert kept() == 1


def test_request_that_left_is_forgotten(batch, kept):
    batch.update(2, added=[(0, *penalised(batch)), (1, *penalised(batch))])
    batch.update(1, removed=[1])
    assert kept() == 1


def test_new_request_in_an_old_place_starts_afresh(batch):
    first, second = penalised(batch), penalised(batch)
    batch.update(1, added=[(0, *first)])
    batch.draw(two_best((10, 11)), [first[2]])
    batch.update(1, added=[(0, *second)])
    assert batch.draw(two_best((10, 11)), [second[2]]) == [10]


def test_nothing_changes_without_an_update(batch):
    request = penalised(batch)
    batch.update(1, added=[(0, *request)])
    batch.draw(two_best((10, 11)), [request[2]])
    batch.sampler.update_state(None)
    assert batch.draw(two_best((10, 11)), [request[2]]) == [11]


def test_padding_is_drawn_only_to_tell_of_broken_logits(batch):
    well, broken = batch.request(strategy="ras"), batch.request(strategy="ras")
    batch.update(2, added=[(0, *well), (1, *broken)])
    logits = certain(5, 5)
    logits[0, SPEECH_TOKENS + 3 :] = 1000.0
    logits[1, 7] = torch.inf
    assert batch.draw(logits, [well[2], broken[2]]) == [5, SPEECH_TOKENS + 3]


def test_draw_that_vllm_threw_away_is_told(batch):
    """It would take a token of the seed's sequence that nobody hears."""
    request = batch.request(strategy="ras")
    batch.update(1, added=[(0, *request)])
    batch.draw(certain(5), [[]])
    with pytest.raises(RuntimeError, match="vLLM has 0 ids of a sequence for which 1 were drawn"):
        batch.draw(certain(5), [[]])


@pytest.mark.parametrize("extra_args", [None, {}, {"another": 1}])
def test_request_of_somebody_else_is_refused(batch, extra_args):
    with pytest.raises(ValueError, match="needs extra_args"):
        type(batch.sampler).validate_params(SimpleNamespace(extra_args=extra_args))
