"""A distilled flow's file of times and guidance beside its weights, in every path that reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cosyvoice_runtime.checkpoint import load_config
from cosyvoice_runtime.checkpoint.verify import verify_checkpoint
from cosyvoice_runtime.errors import CheckpointError, InvalidInput
from cosyvoice_runtime.families import FAMILIES
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.local import SpeechRequest, Synthesizer
from cosyvoice_runtime.onnx.session import EstimatorFormats
from cosyvoice_runtime.settings import Settings, Token2WavSettings
from cosyvoice_runtime.settings.machine import Machine
from cosyvoice_runtime.token2wav.chunked_token2wav import ChunkedToken2Wav
from cosyvoice_runtime.token2wav.onnx_files import wanted_manifest
from making import make_checkpoint

FILE = "flow_schedule.json"
TWO_STEPS = {"times": [0, 0.5], "guidance": 0}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    made = make_checkpoint(tmp_path / "made", "tiny", seed=4)
    (made / "SHA256SUMS").unlink()
    return made


def lay_beside(checkpoint: Path, content: Any) -> None:
    (checkpoint / FILE).write_text(json.dumps(content))


def spoken(checkpoint: Path, **options: Any) -> np.ndarray[Any, Any]:
    library = Synthesizer.from_checkpoint(checkpoint, **options)
    voice = next(iter(library.speakers.values()))
    request = SpeechRequest("Hello there.", voice, seed=3, sampling=SamplingOptions(max_tokens=25))
    chunks = library.synthesize(request)
    return np.concatenate([chunk.samples for chunk in chunks])


def test_the_configuration_has_its_times_and_guidance(checkpoint):
    published = load_config(checkpoint).flow
    assert (published.times, published.cfg_rate, published.guidance_rows) == ((), 0.7, 2)
    lay_beside(checkpoint, TWO_STEPS)
    flow = load_config(checkpoint).flow
    assert (flow.times, flow.cfg_rate, flow.guidance_rows) == ((0.0, 0.5), 0.0, 1)
    lay_beside(checkpoint, {"times": [0]})
    assert (load_config(checkpoint).flow.times, load_config(checkpoint).flow.cfg_rate) == ((0.0,), 0.7)
    lay_beside(checkpoint, {"guidance": 1.5})
    assert (load_config(checkpoint).flow.times, load_config(checkpoint).flow.cfg_rate) == ((), 1.5)


def test_the_published_key_of_guidance_may_say_that_there_is_none(checkpoint):
    text = (checkpoint / "cosyvoice2.yaml").read_text()
    assert "inference_cfg_rate: 0.7" in text
    (checkpoint / "cosyvoice2.yaml").write_text(text.replace("rate: 0.7", "rate: 0"))
    assert load_config(checkpoint).flow.guidance_rows == 1


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ({}, "keys is"),
        (
            {"times": [0], "steps": 1},
            r"keys is \['steps', 'times'\]; expected some of times, guidance and meanflow",
        ),
        ({"times": []}, r"times is \[\]; expected 1 to 100 numbers from 0 on"),
        ({"times": 4}, "times is 4"),
        ({"times": [0, "0.5"]}, "times is"),
        ({"times": [0, True]}, "times is"),
        ({"times": [0.1, 0.5]}, r"times is \[0.1, 0.5\]"),
        ({"times": [0, 0.5, 0.5]}, "each at least 0.0001 above the one before"),
        ({"times": [0, 0.5, 1]}, "the last as far below 1"),
        ({"times": [0, float("nan")]}, "times is"),
        ({"times": [each / 101 for each in range(101)]}, "1 to 100 numbers"),
        ({"meanflow": 1}, "meanflow is 1; expected true or false"),
        ({"guidance": -0.1}, "guidance is -0.1; expected a number from 0, which is none, to 10"),
        ({"guidance": 11}, "guidance is 11"),
        ({"guidance": None}, "guidance is None"),
        ({"guidance": float("nan")}, "guidance is nan"),
        ([0, 0.5], "expected a JSON object"),
    ],
)
def test_what_it_may_not_hold_is_refused_by_file_field_value_and_limit(checkpoint, content, field):
    lay_beside(checkpoint, content)
    with pytest.raises(CheckpointError, match=rf"{FILE}: .*{field}"):
        load_config(checkpoint)
    assert any(FILE in problem for problem in verify_checkpoint(checkpoint))


def test_settings_take_the_number_of_its_times_and_no_other(checkpoint):
    machine, settings = Machine(cores=2, gpu=False), Token2WavSettings(checkpoint_dir=checkpoint)
    assert settings.resolved(machine).ode_steps == 10
    lay_beside(checkpoint, TWO_STEPS)
    assert settings.resolved(machine).ode_steps == 2
    assert settings.replace(ode_steps=2).resolved(machine).ode_steps == 2
    with pytest.raises(InvalidInput, match=rf"token2wav\.ode_steps: 4 .*2 or none given: {FILE}"):
        settings.replace(ode_steps=4).resolved(machine)
    every = Settings.read([f"checkpoint_dir={checkpoint}", "token2wav.ode_steps=auto"])
    assert every.resolved(machine).token2wav.ode_steps == 2


def test_the_library_speaks_with_its_times_on_torch_and_on_onnx_runtime(checkpoint, tmp_path):
    exported = {"runtime": "onnx", "exported": tmp_path / "exported"}
    published = spoken(checkpoint, ode_steps=2, **exported)
    lay_beside(checkpoint, TWO_STEPS)
    on_torch, on_onnx = spoken(checkpoint), spoken(checkpoint, **exported)
    np.testing.assert_allclose(on_onnx, on_torch, atol=2e-3, rtol=0)
    assert np.abs(on_torch - published).max() > 1e-2
    with pytest.raises(InvalidInput, match="ode_steps: 3"):
        spoken(checkpoint, ode_steps=3)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_flows_of_every_family_take_its_steps(tmp_path, family):
    made = make_checkpoint(tmp_path / "made", "tiny", seed=4, family=family.name)
    (made / "SHA256SUMS").unlink()
    lay_beside(made, {"times": [0, 0.25, 0.5], "guidance": 0})
    token2wav = Synthesizer.from_checkpoint(made).token2wav
    flow = token2wav.regulated if isinstance(token2wav, ChunkedToken2Wav) else token2wav.flow.flow
    assert flow.solver.times.tolist() == [0, 0.25, 0.5]
    assert flow.solver.step_sizes.tolist() == [0.25, 0.25, 0.5]
    assert flow.solver.guidance_rows == 1


def with_mixer(checkpoint: Path, mixer: Callable[[int], torch.Tensor]) -> None:
    """Give the flow a layer that makes one embedding of those of a step's two ends, in a file with others."""
    content = torch.load(checkpoint / "flow.pt", weights_only=True)
    state = {name.removeprefix("flow."): each for name, each in content.items() if "mel2wav" not in name}
    width = len(state["decoder.estimator.time_mlp.linear_2.weight"])
    state["decoder.estimator.time_embed_mixer.weight"] = mixer(width)
    beside = {"mel2wav.conv_pre.bias": torch.ones(3)}
    torch.save(beside | {f"flow.{name}": each for name, each in state.items()}, checkpoint / "flow.pt")


def seeing(first: float, second: float) -> Callable[[int], torch.Tensor]:
    """A mixer that adds both embeddings with these weights."""
    return lambda width: torch.cat([first * torch.eye(width), second * torch.eye(width)], dim=1)


def test_a_mean_flow_that_looks_at_the_start_of_a_step_alone_speaks_as_any_other(checkpoint, tmp_path):
    """So an IntMeanFlow begins its training (arXiv 2510.07979, 3.3)."""
    onnx = {"runtime": "onnx", "exported": tmp_path / "exported"}
    lay_beside(checkpoint, TWO_STEPS)
    plain, plain_on_onnx = spoken(checkpoint), spoken(checkpoint, **onnx)
    with_mixer(checkpoint, seeing(1, 0))
    with pytest.raises(CheckpointError, match=r"time_embed_mixer\.weight is unknown"):
        spoken(checkpoint)
    lay_beside(checkpoint, {**TWO_STEPS, "meanflow": True})
    assert verify_checkpoint(checkpoint) == []
    np.testing.assert_allclose(spoken(checkpoint), plain, atol=1e-5, rtol=0)
    np.testing.assert_allclose(spoken(checkpoint, **onnx), plain_on_onnx, atol=1e-5, rtol=0)


def test_a_mean_flow_is_told_where_each_step_ends(checkpoint, tmp_path):
    lay_beside(checkpoint, TWO_STEPS)
    plain = Synthesizer.from_checkpoint(checkpoint).token2wav.flow.flow.network.estimator
    with_mixer(checkpoint, seeing(0, 1))
    lay_beside(checkpoint, {**TWO_STEPS, "meanflow": True})
    flow = Synthesizer.from_checkpoint(checkpoint).token2wav.flow.flow
    torch.testing.assert_close(flow.solver.time_biases, plain.time_biases(torch.tensor([0.5, 1.0])))
    with_mixer(checkpoint, seeing(0.5, 0.5))
    on_onnx = spoken(checkpoint, runtime="onnx", exported=tmp_path / "exported")
    np.testing.assert_allclose(on_onnx, spoken(checkpoint), atol=2e-3, rtol=0)


def test_mean_velocities_are_followed_by_euler_alone_and_of_one_family(checkpoint, tmp_path):
    with_mixer(checkpoint, seeing(1, 0))
    lay_beside(checkpoint, {"meanflow": True})
    settings = Token2WavSettings(checkpoint_dir=checkpoint, solver="adams_bashforth")
    with pytest.raises(InvalidInput, match=rf"token2wav\.solver: .* euler: by {FILE}"):
        settings.resolved(Machine(cores=2, gpu=False))
    for options in ({}, {"runtime": "onnx", "exported": tmp_path / "exported"}):
        with pytest.raises(InvalidInput, match=rf"solver: .* euler: by {FILE}"):
            spoken(checkpoint, solver="adams_bashforth", **options)
    other = make_checkpoint(tmp_path / "other", "tiny", seed=4, family="cosyvoice3")
    (other / "SHA256SUMS").unlink()
    lay_beside(other, {"meanflow": True})
    with pytest.raises(CheckpointError, match=rf"{FILE}: meanflow is true; expected false with a DiTConfig"):
        load_config(other)


def test_graphs_of_onnx_runtime_are_made_anew_for_another_schedule(checkpoint):
    before = wanted_manifest(checkpoint, EstimatorFormats())
    lay_beside(checkpoint, TWO_STEPS)
    assert wanted_manifest(checkpoint, EstimatorFormats()) != before


def test_a_list_of_checksums_holds_it_too(checkpoint):
    lay_beside(checkpoint, TWO_STEPS)
    (checkpoint / "SHA256SUMS").write_text(f"{64 * '0'}  {FILE}\n")
    with pytest.raises(CheckpointError, match=rf"{FILE}: damaged, or changed"):
        load_config(checkpoint)
