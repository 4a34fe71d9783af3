"""Voices with adapters of their own speak together, each what a server with its adapter folded in speaks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from capture_fake import TracingCapture
from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.lm_rows import BACKBONE, PROJECTIONS
from cosyvoice_runtime.checkpoint.tensors import load_tensors as load_arrays
from cosyvoice_runtime.checkpoint.voice_adapters import read_voice_adapters
from cosyvoice_runtime.engine.frames import FrameReader
from cosyvoice_runtime.engine.messages import begin_frame, take_text
from cosyvoice_runtime.errors import CheckpointError, InvalidInput
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.cache import CachePool
from cosyvoice_runtime.lm.engines.engine import prepare_engine
from cosyvoice_runtime.lm.torch.adapters import load_adapters
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder
from cosyvoice_runtime.lm.torch.speech_decoder import load_speech_lm
from cosyvoice_runtime.local import SpeechRequest, Synthesizer
from cosyvoice_runtime.settings import TensorrtLlmSettings
from making import make_checkpoint

PARTS = [part for parts in PROJECTIONS.values() for part in parts]
OPTIONS = SamplingOptions("ras", seed=3, min_tokens=20, max_tokens=20)
RANKS = {"warm": 4, "crisp": 20}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_checkpoint(tmp_path_factory.mktemp("adapters") / "made", "tiny", seed=4)
    (made / "SHA256SUMS").unlink()
    return made


def matrices_of(checkpoint: Path, rank: int, parts: list[str], seed: int) -> dict[str, Any]:
    """Of every layer, large enough to be heard."""
    random, config = np.random.default_rng(seed), load_config(checkpoint)
    weights, matrices = load_arrays(Layout(checkpoint), "llm", config), {}
    for index in range(config.speech_lm.num_layers):
        for part in parts:
            layer = f"{BACKBONE}.layers.{index}.{part}"
            outputs, inputs = weights[f"{layer}.weight"].shape
            for side, shape in (("A", (rank, inputs)), ("B", (outputs, rank))):
                matrices[f"{layer}.lora_{side}.weight"] = random.normal(0, 0.2, shape).astype(np.float32)
    return matrices


def lay(folder: Path, matrices: dict[str, Any], rank: int, **config: Any) -> None:
    folder.mkdir(parents=True)
    told = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "bias": "none"} | config
    (folder / "adapter_config.json").write_text(json.dumps(told))
    save_file(matrices, folder / "adapter_model.safetensors")


@pytest.fixture(scope="module")
def adapted(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with two adapters: of all layers, and of those that peft adapts by itself."""
    made = tmp_path_factory.mktemp("with") / "adapted"
    shutil.copytree(plain, made)
    for seed, (name, parts) in enumerate({"warm": PARTS, "crisp": [PARTS[0], PARTS[2]]}.items()):
        lay(made / "adapters" / name, matrices_of(plain, RANKS[name], parts, seed), RANKS[name])
    return made


def with_folded(adapted: Path, name: str, made: Path) -> Path:
    shutil.copytree(adapted, made)
    if name:
        shutil.copytree(made / "adapters" / name, made / "lora")
    shutil.rmtree(made / "adapters")
    return made


def prompt(name: str) -> Prompt:
    return Prompt(range(5, 20), prompt_speech=range(7), adapter=name)


def engine_of(checkpoint: Path) -> Any:
    settings = TensorrtLlmSettings(
        checkpoint_dir=checkpoint, engine="torch", device="cpu", dtype="float32", max_slots=4,
        max_sequence_tokens=256, kv_cache_tokens=1024, max_tokens=64,
    )  # fmt: skip
    return prepare_engine(settings)()


def spoken(batch: BatchDecoder, prompts: list[Prompt]) -> list[list[int]]:
    generations = [batch.add(each, OPTIONS) for each in prompts]
    while batch.busy:
        batch.step()
    assert not [each.error for each in generations if each.error]
    return [each.tokens for each in generations]


@pytest.fixture(scope="module")
def alone(adapted: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """What servers speak that have one adapter folded in, or none."""
    folder = tmp_path_factory.mktemp("alone")
    return {
        name: spoken(engine_of(with_folded(adapted, name, folder / f"of-{name}")), [prompt("")])[0]
        for name in ("", *RANKS)
    }


def test_voices_in_one_batch_speak_what_servers_with_their_adapters_do(adapted, alone):
    assert len({tuple(tokens) for tokens in alone.values()}) == len(alone)
    engine, names = engine_of(adapted), ["warm", "crisp", "", "crisp"]
    assert spoken(engine, [prompt(name) for name in names]) == [alone[name] for name in names]
    # Slots go to other voices.
    assert spoken(engine, [prompt(name) for name in names[::-1]]) == [alone[name] for name in names[::-1]]


def captured(checkpoint: Path, pool: CachePool | None = None) -> BatchDecoder:
    layout, config = Layout(checkpoint), load_config(checkpoint)
    lm = load_speech_lm(config.speech_lm, load_tensors(layout, "llm", config))
    load_adapters(lm, layout, config.speech_lm)
    return BatchDecoder(lm, 3, 64, TracingCapture(), prefill_batch=2, pool=pool)


@pytest.fixture(scope="module")
def captured_alone(adapted: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """What decoders draw in captured steps that have one adapter folded in, or none."""
    folder = tmp_path_factory.mktemp("captured")
    return {
        name: spoken(captured(with_folded(adapted, name, folder / f"of-{name}")), [prompt("")])[0]
        for name in ("", *RANKS)
    }


def test_captured_steps_and_prompts_take_the_adapters_that_slots_have(adapted, captured_alone):
    both = captured(adapted)
    for names in (["crisp", "", "warm"], ["warm", "crisp", "warm"], [""]):
        assert spoken(both, [prompt(name) for name in names]) == [captured_alone[name] for name in names]


def test_a_slot_takes_another_adapter_while_others_speak_and_pages_are_scarce(adapted, captured_alone):
    decoder = captured(adapted, CachePool(8, 10))  # An utterance takes 6 pages at its end.
    first, cancelled, waiting = (decoder.add(prompt(name), OPTIONS) for name in ("crisp", "warm", ""))
    for _ in range(5):
        decoder.step()
    assert all(each.tokens for each in (first, cancelled))
    assert not waiting.tokens
    decoder.cancel(cancelled)
    later = decoder.add(prompt("crisp"), OPTIONS)
    assert later.slot == cancelled.slot
    while decoder.busy:
        decoder.step()
    assert decoder.cache_use.evictions
    expected = [captured_alone[name] for name in ("crisp", "", "crisp")]
    assert [each.tokens for each in (first, waiting, later)] == expected


def test_an_adapter_that_is_not_there_is_refused_by_name(adapted, plain):
    with pytest.raises(InvalidInput, match=r"adapter.*'cold'.*one of crisp, warm"):
        engine_of(adapted).add(prompt("cold"), OPTIONS)
    with pytest.raises(InvalidInput, match=r"adapter.*'cold'.*folder adapters has none"):
        engine_of(plain).add(prompt("cold"), OPTIONS)


def test_a_checkpoint_lists_its_adapters_and_none_without_a_folder(adapted, plain):
    assert list(Layout(adapted).voice_adapters) == ["crisp", "warm"]
    assert "adapters/warm/adapter_model.safetensors" in Layout(adapted).names()
    assert not Layout(plain).voice_adapters
    form = read_voice_adapters(Layout(adapted), load_config(adapted).speech_lm).form
    assert form == (32, tuple(PROJECTIONS))


@pytest.mark.parametrize(
    ("layer", "shapes", "config", "told"),
    [
        (f"{BACKBONE}.layers.0.{PARTS[0]}", ((65, 64), (64, 65)), {}, r"has rank 65; by voice it is 1 to 64"),
        (f"{BACKBONE}.layers.9.{PARTS[0]}", ((4, 64), (64, 4)), {}, r"no layers of the name .*layers\.9"),
        (f"{BACKBONE}.layers.0.{PARTS[0]}", ((4, 60), (64, 4)), {}, r"made for \(64, 60\), .* is \(64, 64\)"),
        (f"{BACKBONE}.layers.0.{PARTS[0]}", ((4, 64), (64, 3)), {}, r"which don't fit each other"),
        (f"{BACKBONE}.layers.0.{PARTS[0]}", ((4, 64), (64, 4)), {"r": 8}, r"has rank 4, its configuration 8"),
        ("llm_decoder", ((4, 64), None), {}, r"llm_decoder can't be adapted by voice; q_proj, k_proj"),
    ],
)
def test_adapters_that_do_not_fit_are_refused_at_the_start(plain, tmp_path, layer, shapes, config, told):
    checkpoint = tmp_path / "made"
    shutil.copytree(plain, checkpoint)
    speech_lm = load_config(checkpoint).speech_lm
    down, up = shapes[0], shapes[1] or (speech_lm.speech_rows, 4)
    matrices = {f"{layer}.lora_A.weight": np.ones(down, np.float32)}
    matrices[f"{layer}.lora_B.weight"] = np.ones(up, np.float32)
    lay(checkpoint / "adapters" / "odd", matrices, config.get("r", down[0]))
    with pytest.raises(CheckpointError, match=told):
        read_voice_adapters(Layout(checkpoint), speech_lm)


def test_a_matrix_with_nan_is_refused(adapted, plain, tmp_path):
    checkpoint = tmp_path / "made"
    shutil.copytree(plain, checkpoint)
    matrices = matrices_of(plain, 4, PARTS[:1], 0)
    name = next(iter(matrices))
    matrices[name][0, 0] = np.nan
    lay(checkpoint / "adapters" / "odd", matrices, 4)
    with pytest.raises(CheckpointError, match=r"q_proj has NaN or infinity"):
        engine_of(checkpoint)


def test_a_voice_with_an_adapter_is_heard_as_with_it_folded_in(adapted, tmp_path):
    def heard(checkpoint: Path, adapter: str) -> Any:
        library = Synthesizer.from_checkpoint(checkpoint, ode_steps=2)
        voice = next(iter(library.speakers.values()))
        voice = voice.with_adapter(adapter) if adapter else voice
        sampling = SamplingOptions(max_tokens=25)
        request = SpeechRequest("Hello there.", voice, seed=3, sampling=sampling)
        return np.concatenate([chunk.samples for chunk in library.synthesize(request)])

    folded = heard(with_folded(adapted, "warm", tmp_path / "folded"), "")
    np.testing.assert_allclose(heard(adapted, "warm"), folded, atol=1e-3)
    plain = heard(adapted, "")
    assert len(plain) != len(folded) or not np.allclose(plain, folded, atol=1e-3)


def test_a_message_brings_the_adapter_of_a_prompt():
    class Sink:
        def begin(self, prompt: Prompt, *how: object) -> None:
            self.prompt = prompt

    sink = Sink()
    [frame] = FrameReader().feed(begin_frame(prompt("warm"), False, None))
    take_text(frame, sink)
    assert sink.prompt.adapter == "warm"
