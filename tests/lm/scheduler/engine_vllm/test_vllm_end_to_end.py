"""Checkpoint, export, engine and scheduler in a row, against the engine ``torch``."""

from __future__ import annotations

import pytest
from coded_vllm import exported_model
from engine_drivers import speak, torch_settings

from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.lm.engines.engine import prepare_engine

pytestmark = pytest.mark.parametrize("lm_checkpoint", ["cosyvoice2", "cosyvoice3"], indirect=True)

OPTIONS = {
    "greedy": SamplingOptions("greedy", min_tokens=8, max_tokens=24),
    "penalised": SamplingOptions(
        "greedy", repetition_penalty=1.3, temperature=0.7, min_tokens=12, max_tokens=24
    ),
    "nucleus": SamplingOptions("nucleus", 40, 0.9, seed=3, min_tokens=8, max_tokens=24),
    "ras": SamplingOptions("ras", seed=5, min_tokens=8, max_tokens=24),
    "other ras": SamplingOptions(
        "ras", 10, 0.95, 1.4, 1.2, window=5, tau=0.2, seed=11, min_tokens=8, max_tokens=24
    ),
}


@pytest.fixture
def settings(vllm, vllm_settings):
    """The stand-in computes with what was exported, and knows nothing else."""
    vllm.load_model = exported_model
    return vllm_settings()


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_tokens_equal_those_of_the_torch_engine(settings, make_scheduler, options):
    expected = speak(make_scheduler(prepare_engine(torch_settings(settings))), [options] * 4)
    actual = speak(make_scheduler(prepare_engine(settings)), [options] * 4)
    for one, other in zip(actual, expected, strict=True):
        assert (one.tokens, one.reason) == (other.tokens, other.reason)
    assert all(len(reader.tokens) > 5 for reader in expected)


def test_neighbours_of_other_strategies_change_nothing(settings, make_scheduler):
    mixed = [OPTIONS["ras"], OPTIONS["nucleus"], OPTIONS["greedy"], OPTIONS["ras"]]
    alone = make_scheduler(prepare_engine(torch_settings(settings)))
    expected = [speak(alone, [options] * 4)[place].tokens for place, options in enumerate(mixed)]
    together = speak(make_scheduler(prepare_engine(settings)), mixed)
    assert [reader.tokens for reader in together] == expected
