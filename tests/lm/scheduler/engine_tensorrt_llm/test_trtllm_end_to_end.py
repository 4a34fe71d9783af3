"""Checkpoint, conversion, build, engine and scheduler in a row, against the engine ``torch``."""

from __future__ import annotations

import pytest
from engine_drivers import speak, torch_settings

from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.lm.engines.engine import prepare_engine
from cosyvoice_runtime.preflight.tensorrt_llm import EXECUTOR, USED
from trtllm_fake.converted_lm import ConvertedLM
from trtllm_fake.executor import read_checkpoint

pytestmark = pytest.mark.parametrize("lm_checkpoint", ["cosyvoice2", "cosyvoice3"], indirect=True)


@pytest.fixture(params=["merged", "speech"])
def settings(request, trtllm, trtllm_settings):
    """The fake executor computes with what was converted, and knows nothing else."""

    def load(engine):
        network = ConvertedLM(read_checkpoint(engine))
        return lambda ids: network(ids)[-1]

    trtllm.load_model = load
    return trtllm_settings(request.param)


@pytest.mark.parametrize(
    "options",
    [
        SamplingOptions("greedy", min_tokens=8, max_tokens=24),
        SamplingOptions("greedy", repetition_penalty=1.3, temperature=0.7, min_tokens=12, max_tokens=24),
        SamplingOptions("ras", seed=5, min_tokens=8, max_tokens=24),
        SamplingOptions("ras", 10, 0.95, 1.4, 1.2, window=5, tau=0.2, seed=11, min_tokens=8, max_tokens=24),
    ],
    ids=["greedy", "penalised", "ras", "other ras"],
)
def test_tokens_equal_those_of_the_torch_engine(settings, make_scheduler, options):
    """Greedy through the reference of TensorRT-LLM's kernels, ras through the callback."""
    expected = speak(make_scheduler(prepare_engine(torch_settings(settings))), [options] * 4)
    actual = speak(make_scheduler(prepare_engine(settings)), [options] * 4)
    for one, other in zip(actual, expected, strict=True):
        assert (one.tokens, one.reason) == (other.tokens, other.reason)
    assert all(len(reader.tokens) > 5 for reader in expected)


def test_ras_is_not_disturbed_by_neighbours_that_tensorrt_llm_draws_for(settings, make_scheduler):
    ras = SamplingOptions("ras", seed=5, min_tokens=6, max_tokens=24)
    nucleus = SamplingOptions("nucleus", seed=5, min_tokens=6, max_tokens=24)
    alone = speak(make_scheduler(prepare_engine(torch_settings(settings))), [ras] * 4)
    mixed = speak(make_scheduler(prepare_engine(settings)), [ras, nucleus, ras, nucleus])
    assert [mixed[place].tokens for place in (0, 2)] == [alone[place].tokens for place in (0, 2)]
    assert all(0 <= token < 6561 for reader in mixed for token in reader.tokens)


def test_preflight_looks_at_every_parameter_that_is_passed(settings, make_scheduler, trtllm):
    ras, greedy = (SamplingOptions(strategy, min_tokens=0, max_tokens=4) for strategy in ("ras", "greedy"))
    speak(make_scheduler(prepare_engine(settings)), [ras, greedy, greedy, ras])
    looked_at = {symbol.name: set(symbol.parameters.split()) for symbol in USED if symbol.module == EXECUTOR}
    passed = {name: used for name, used in trtllm.used.items() if name in looked_at}
    assert "Request" in passed
    bias_only_in_merged = {"embedding_bias"} if settings.engine_dir.name == "speech" else set()
    for name, used in passed.items():
        assert used == looked_at[name] - bias_only_in_merged
    assert {"IterationStats", "KvCacheStats", "Response", "Result"} >= trtllm.used.keys() - passed.keys()
