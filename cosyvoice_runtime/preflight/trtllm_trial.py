"""A trial of TensorRT-LLM as the server uses it: a small engine with made weights is built and answers.

    python -m cosyvoice_runtime.preflight.trtllm_trial merged bfloat16

It has a process of its own, because the executor starts MPI and may end its process or hang. A line of its
output begins with :data:`~cosyvoice_runtime.preflight.tensorrt_llm.TRIAL_FOUND`, and goes on with a JSON list
of ``[check, problems, text]``.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.schema import qwen2_lm_schema
from cosyvoice_runtime.errors import CosyVoiceError, EngineFileError
from cosyvoice_runtime.lm import Generation, Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.tensorrt_llm.build import BIAS_FILE, BuildOptions, build
from cosyvoice_runtime.lm.engines.tensorrt_llm.checkpoint import EngineVocabulary, Source
from cosyvoice_runtime.lm.engines.tensorrt_llm.convert import ConversionOptions, convert_source
from cosyvoice_runtime.lm.engines.tensorrt_llm.prepare import BINDINGS, open_executor, read_bias
from cosyvoice_runtime.lm.engines.tensorrt_llm.requests import LibrarySampler, RequestMaker
from cosyvoice_runtime.lm.generation import TokenLimits
from cosyvoice_runtime.preflight.tensorrt_llm import TRIAL_FOUND
from cosyvoice_runtime.settings import TensorrtLlmSettings

TEXT_TOKENS = 151_663
"""Text ids of the published tokenizer, so that the bias has the published length: 158,336."""
POSITIONS = 256
CACHE_TOKENS = 512
CERTAIN = 1000.0
"""A bias that outweighs every logit of small weights."""
SCALE = 0.02
"""Standard deviation of the made weights."""
WAIT = timedelta(seconds=0.5)


class TrialResult(NamedTuple):
    """The result of one check; ``problems`` is empty where all is right."""

    check: str
    problems: list[str]
    text: str


class MadeSource(Source):
    """Weights that no file holds, the same each time."""

    def tensors(self) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(0)
        schema = qwen2_lm_schema(self.config)
        return {name: torch.randn(shape, generator=generator) * SCALE for name, shape in schema.items()}


def small_config(text_tokens: int) -> SpeechLMConfig:
    """Two layers with CosyVoice2's vocabulary and size of heads."""
    return SpeechLMConfig(
        hidden_size=128,
        intermediate_size=256,
        num_layers=2,
        num_heads=2,
        num_kv_heads=1,
        text_vocab_size=text_tokens,
        speech_tokens=6561,
        rope_theta=1e6,
        rms_norm_eps=1e-6,
        max_positions=1024,
        mix_ratio=(5, 15),
    )


def trial(folder: Path, layout: str, dtype: str, text_tokens: int = TEXT_TOKENS) -> Iterator[TrialResult]:
    """Build in a folder, open an executor on it, and ask; any exception is a failure of the whole trial."""
    config = small_config(text_tokens)
    convert_source(
        MadeSource(folder, config, text_tokens, ()), folder / "checkpoint", ConversionOptions(layout, dtype)
    )
    build(folder / "checkpoint", folder / "engine", BuildOptions(2, POSITIONS, POSITIONS))
    vocabulary = EngineVocabulary.of(layout, text_tokens, config)
    bias = read_bias(folder / "engine" / BIAS_FILE, vocabulary) if layout == "merged" else None
    bindings, sampler = importlib.import_module(BINDINGS), LibrarySampler(vocabulary, bias)
    settings = TensorrtLlmSettings(max_slots=2, kv_cache_tokens=CACHE_TOKENS)
    executor = open_executor(bindings, folder / "engine", settings, sampler)
    yield TrialResult("executor", [], f"opened by user {os.getuid()}")
    requests = RequestMaker(bindings, vocabulary, bias, POSITIONS)
    try:
        yield check_ras(executor, requests, sampler, config)
        if bias is not None:
            yield check_bias_and_stop_words(executor, requests)
        yield check_cache(executor)
    finally:
        executor.shutdown()


def check_ras(
    executor: Any, requests: RequestMaker, sampler: LibrarySampler, config: SpeechLMConfig
) -> TrialResult:
    """Ask with ``ras``: TensorRT-LLM has to call this library each step and to take what it leaves."""
    options = SamplingOptions("ras", seed=1, min_tokens=4, max_tokens=12)
    limits = TokenLimits.of(options, 3)
    drawing = Generation(config, options, (), limits)
    sampler.enter(1, drawing)
    request = requests.make(Prompt([1, 2, 3]), options, limits, drawing.seed, 1)
    ids, _ = answer(executor, request)
    error = sampler.leave(1)
    codes = [id_ - requests.vocabulary.speech_offset for id_ in ids]
    taken = [code for code in codes if code < config.speech_tokens]
    problems = [str(error)] if error else []
    if len(taken) < limits.min_tokens or taken != drawing.tokens[: len(taken)]:
        problems.append(f"this library drew {drawing.tokens}, TensorRT-LLM took {taken}")
    return TrialResult("ras in a callback", problems, f"{len(taken)} tokens as drawn")


def check_bias_and_stop_words(executor: Any, requests: RequestMaker) -> TrialResult:
    """Ask for greedy tokens with a bias for a stop id that is not the end id: it has to come first."""
    vocabulary, bias = requests.vocabulary, requests.bias
    assert bias is not None
    stop = next(id_ for id_ in vocabulary.stop_ids if id_ != vocabulary.end_id)
    steered = replace(requests, bias=bias.index_fill(0, torch.tensor([stop]), CERTAIN))
    options = SamplingOptions("greedy", min_tokens=0, max_tokens=12)
    request = steered.make(Prompt([1, 2, 3]), options, TokenLimits.of(options, 3), 1, 2)
    ids, reason = answer(executor, request)
    expected = ids == [stop] and reason.name == "STOP_WORDS"
    problems = [] if expected else [f"asked for the stop id {stop} alone, got {ids}, ended by {reason.name}"]
    return TrialResult("embedding_bias and stop words", problems, f"{len(bias)} values, {bias.dtype}")


def check_cache(executor: Any) -> TrialResult:
    """Look at the pool, which has to hold what was asked for."""
    told = [iteration.kv_cache_stats for iteration in executor.get_latest_iteration_stats()]
    held = max((cache.max_num_blocks * cache.tokens_per_block for cache in told if cache), default=0)
    problems = [f"{held} positions, {CACHE_TOKENS} were asked for"] if held < CACHE_TOKENS else []
    return TrialResult("KV cache", problems, f"{held} positions")


def answer(executor: Any, request: Any) -> tuple[list[int], Any]:
    """All ids of a request and the reason of their end; an EngineFileError tells why it was refused."""
    executor.enqueue_request(request)
    ids: list[int] = []
    while True:
        for response in executor.await_responses(timeout=WAIT):
            if response.has_error():
                raise EngineFileError(f"TensorRT-LLM refused a request: {response.error_msg}")
            ids += response.result.output_token_ids[0]
            if response.result.is_final:
                return ids, response.result.finish_reasons[0]


def main(layout: str, dtype: str) -> None:
    try:
        with TemporaryDirectory() as folder:
            found = list(trial(Path(folder), layout, dtype))
    except (CosyVoiceError, RuntimeError) as error:  # TensorRT-LLM's own errors are of the latter class.
        sys.exit(f"{type(error).__name__}: {error}")
    print(f"{TRIAL_FOUND}{json.dumps(found)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
