"""The smoke test of a built engine: it passes the right engine and finds a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import lm_agreement
from cosyvoice_runtime.lm import FinishReason, Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.tensorrt_llm.build import BuildOptions, build
from cosyvoice_runtime.lm.engines.tensorrt_llm.checkpoint import LAYOUTS
from cosyvoice_runtime.lm.engines.tensorrt_llm.convert import ConversionOptions, convert
from cosyvoice_runtime.lm.prompt import PromptSegment, Table
from cosyvoice_runtime.lm.torch.decoder import generate
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from measuring.agreement import Spoken, agreement
from trtllm_fake.converted_lm import ConvertedLM
from trtllm_fake.executor import read_checkpoint

GREEDY = SamplingOptions("greedy", min_tokens=0, max_tokens=20, runaway_span=0)


@pytest.fixture
def arguments(request, fake, tiny_checkpoint, tmp_path, monkeypatch) -> list[str]:
    """Of the command, for an engine whose network is what was converted."""
    layout = getattr(request, "param", "merged")
    convert(tiny_checkpoint, tmp_path / "converted", ConversionOptions(layout, dtype="float32"))
    build(tmp_path / "converted", tmp_path / "engine", BuildOptions(8, 256, 256))
    fake.load_model = lambda engine: last_row(ConvertedLM(read_checkpoint(engine)))
    monkeypatch.setattr(lm_agreement.Machine, "here", lambda: lm_agreement.Machine(cores=1, gpu=False))
    on_cpu = lm_agreement.SpeechLM.from_tensors
    monkeypatch.setattr(
        lm_agreement.SpeechLM, "from_tensors", lambda config, tensors, device: on_cpu(config, tensors)
    )
    engine = f"tensorrt_llm.engine_dir={tmp_path / 'engine'}"
    settings = ["device=cuda", "dtype=float32", "max_slots=3", "max_sequence_tokens=256", "max_tokens=50"]
    options = ["--checkpoint", str(tiny_checkpoint), "--utterances", "4", "--tokens", "20"]
    kind = ["tensorrt_llm.engine=tensorrt_llm", f"tensorrt_llm.vocabulary={layout}"]
    return [*options, *kind, engine, *settings]


def last_row(network: ConvertedLM):
    return lambda ids: network(ids)[-1]


@pytest.mark.parametrize("arguments", LAYOUTS, indirect=True)
def test_right_engine_passes(arguments, capsys):
    assert lm_agreement.main(arguments) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert last == "worst 0.0000, tolerated 0.25"


def test_engine_with_other_weights_fails(arguments, fake, capsys):
    def load(engine: Path):
        network = ConvertedLM(read_checkpoint(engine))
        for rank in network.ranks:
            rank["transformer.layers.1.mlp.fc.weight"].mul_(-1)
        return last_row(network)

    fake.load_model = load
    assert lm_agreement.main(arguments) == 1
    assert float(capsys.readouterr().out.splitlines()[-1].split()[1].rstrip(",")) > 0.25


def test_engine_that_fails_is_told(arguments, fake, capsys):
    fake.refuse = lambda request: "no blocks left"
    assert lm_agreement.main(arguments) == 1
    assert capsys.readouterr().err.startswith("lm_agreement: TensorRT-LLM could not decode this utterance")


def test_gap_is_how_much_better_the_best_token_was(lm):
    prompt = Prompt([5, 6, 7], prompt_speech=[1, 2])
    own, _ = generate(lm, prompt, GREEDY)
    same = agreement(lm, prompt, GREEDY, Spoken(own, FinishReason.LENGTH))
    assert (same.tokens, same.equal) == (len(own), len(own))
    assert same.worst == pytest.approx(0, abs=1e-4)
    other = [*own[:3], (own[3] + 1) % 6561]
    embeddings = lm.embed([*prompt.segments(), PromptSegment(Table.SPEECH, own[:3])])
    cache = KVCache(lm.config, 1, len(embeddings)).view(0, 1)
    logits = lm.prefill(embeddings, 0, cache)
    worse = agreement(lm, prompt, GREEDY, Spoken(other, FinishReason.LENGTH))
    assert worse.equal == 3
    assert worse.worst == pytest.approx(float(logits.max() - logits[other[3]]), abs=1e-3)


def test_end_counts_as_a_token(lm):
    prompt = Prompt([5, 6, 7])
    spoken = Spoken([], FinishReason.STOP)
    found = agreement(lm, prompt, GREEDY, spoken)
    embeddings = lm.embed(prompt.segments())
    logits = lm.prefill(embeddings, 0, KVCache(lm.config, 1, len(embeddings)).view(0, 1))
    assert found.tokens == 1
    assert found.worst == pytest.approx(float(logits.max() - logits[6561:].max()), abs=1e-3)


def test_prompts_are_the_same_every_time(tiny_checkpoint):
    first, second = (lm_agreement.make_prompts(tiny_checkpoint, 4) for _ in range(2))
    assert first == second
    assert [len(prompt.prompt_speech) for prompt in first] == [0, 100, 0, 100]
    assert torch.tensor(first[0].text).max() < 1020
