"""The trial of TensorRT-LLM on its stand-in: what it finds right, and each fault that it is there to find."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cosyvoice_runtime.errors import EngineFileError
from cosyvoice_runtime.preflight import tensorrt_llm, trtllm_trial
from cosyvoice_runtime.preflight.checks import Verdict
from cosyvoice_runtime.preflight.trtllm_trial import trial
from trtllm_fake import FakeTrtllm, install, kernels
from trtllm_fake.bindings import KvCacheStats
from trtllm_fake.converted_lm import ConvertedLM
from trtllm_fake.executor import BaseExecutor, read_checkpoint

TEXT_TOKENS = 300
"""The published number of them makes tables of 158,336 rows, which take the stand-in seconds."""


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeTrtllm:
    """An executor that computes with what was converted."""
    fake = install(monkeypatch, tmp_path / "fake")

    def load(engine: Path):
        network = ConvertedLM(read_checkpoint(engine))
        return lambda ids: network(ids)[-1]

    fake.load_model = load
    return fake


def tried(tmp_path: Path, layout: str = "merged") -> dict[str, str]:
    """Problems by check."""
    folder = tmp_path / "trial"
    folder.mkdir()
    return {
        found.check: "; ".join(found.problems) for found in trial(folder, layout, "bfloat16", TEXT_TOKENS)
    }


RIGHT = {"executor": "", "ras in a callback": "", "embedding_bias and stop words": "", "KV cache": ""}


def test_engine_that_does_as_the_sources_say_passes(fake, tmp_path):
    assert tried(tmp_path) == RIGHT
    drawn, steered = fake.requests
    assert drawn.logits_post_processor_name == "batched"
    assert drawn.embedding_bias is None
    assert steered.embedding_bias.shape == (fake.executors[0]._limits["vocab_size"],)
    assert steered.stop_words
    assert not fake.executors[0].running


def test_layout_whose_head_has_the_bias_is_asked_without_one(fake, tmp_path):
    found = tried(tmp_path, "speech")
    assert found == {check: "" for check in RIGHT if check != "embedding_bias and stop words"}


def test_callback_that_is_not_called_is_found(fake, tmp_path, monkeypatch):
    monkeypatch.setattr(BaseExecutor, "_post_process", lambda *arguments: None)
    found = tried(tmp_path)["ras in a callback"]
    assert found.startswith("this library drew [], TensorRT-LLM took [")


def test_logits_that_are_a_copy_are_found(fake, tmp_path, monkeypatch):
    called = BaseExecutor._post_process
    copied = lambda executor, rows, logits: called(executor, rows, [each.clone() for each in logits])  # noqa: E731
    monkeypatch.setattr(BaseExecutor, "_post_process", copied)
    assert ", TensorRT-LLM took [" in tried(tmp_path)["ras in a callback"]


def test_bias_that_has_no_effect_is_found(fake, tmp_path, monkeypatch):
    processed = kernels.processed

    def without(logits, request, output):
        request.embedding_bias = None
        return processed(logits, request, output)

    monkeypatch.setattr(kernels, "processed", without)
    assert tried(tmp_path)["embedding_bias and stop words"].startswith("asked for the stop id ")


def test_stop_words_that_have_no_effect_are_found(fake, tmp_path, monkeypatch):
    extend = BaseExecutor._extend

    def without(row, token):
        row.request.stop_words = []
        extend(row, token)

    monkeypatch.setattr(BaseExecutor, "_extend", staticmethod(without))
    assert tried(tmp_path)["embedding_bias and stop words"].endswith(", ended by LENGTH")


def test_bias_of_another_dtype_is_refused_with_the_executor_s_words(fake, tmp_path, monkeypatch):
    read = trtllm_trial.read_bias
    monkeypatch.setattr(trtllm_trial, "read_bias", lambda *arguments: read(*arguments).half())
    with pytest.raises(
        EngineFileError, match=r"refused a request: .*embedding bias has the wrong shape or dtype"
    ):
        tried(tmp_path)
    assert not fake.executors[0].running


def test_pool_that_is_too_small_is_found(fake, tmp_path):
    fake.cache = KvCacheStats(max_num_blocks=8, tokens_per_block=32)
    assert tried(tmp_path)["KV cache"] == "256 positions, 512 were asked for"


def test_output_that_ends_early_is_found(fake, tmp_path, monkeypatch):
    extend = BaseExecutor._extend

    def ends_at_once(row, token):
        row.request.max_tokens = 1
        extend(row, token)

    monkeypatch.setattr(BaseExecutor, "_extend", staticmethod(ends_at_once))
    assert ", TensorRT-LLM took [" in tried(tmp_path)["ras in a callback"]


def test_preflight_reads_what_the_trial_found_among_other_lines(monkeypatch):
    found = json.dumps([["executor", [], "opened by user 10001"], ["KV cache", ["256 positions"], ""]])
    told = f"builds\n{tensorrt_llm.TRIAL_FOUND}{found}\nbye"
    program = f"import sys; assert sys.argv[1:] == ['merged', 'bfloat16']; print({told!r})"
    monkeypatch.setattr(tensorrt_llm, "TRIAL", [sys.executable, "-c", program])
    right, wrong = tensorrt_llm.check_trial(None)
    assert right == ("trial: executor", Verdict.PASS, "opened by user 10001")
    assert wrong == ("trial: KV cache", Verdict.FAIL, "256 positions")


def test_trial_without_findings_fails_with_what_it_printed(monkeypatch):
    monkeypatch.setattr(tensorrt_llm, "TRIAL", [sys.executable, "-c", "print('builds')"])
    [outcome] = tensorrt_llm.check_trial(None)
    assert outcome == ("trial", Verdict.FAIL, "it printed no line of findings, but 'builds'")


def test_trial_that_can_not_run_fails_with_the_reason():
    """The program itself, on a machine without TensorRT-LLM."""
    [outcome] = tensorrt_llm.check_trial(None)
    assert outcome.verdict is Verdict.FAIL
    assert outcome.text.startswith("a small engine of layout merged ends with status 1: EngineFileError: ")
