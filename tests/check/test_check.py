"""``./run.sh check``: what is sound passes in every precision, what is not is named, its neighbours pass."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cosyvoice_runtime.check.__main__ import main
from cosyvoice_runtime.check.checking import Check
from cosyvoice_runtime.check.comparison import RoundResult, Row, of_logits, of_mel, of_samples
from cosyvoice_runtime.settings import Machine, Settings
from damaged import damaged, damaged_graph
from making import make_checkpoint

ROOT = Path(__file__).parents[2]
DEMO_VOICE = ROOT / "demo_voice"
REFERENCE = DEMO_VOICE / "reference.flac"
WORDS = (DEMO_VOICE / "reference.txt").read_text().strip()
NAN, INFINITY = float("nan"), float("inf")
NETWORKS = ["speech_lm", "flow", "vocoder"]
STAGES = ["weights", "speech_tokenizer", "speaker_encoder", *NETWORKS, *NETWORKS]
TORCH = "tensorrt_llm.engine=torch", "token2wav.backend=torch"
HALF = *TORCH, "tensorrt_llm.dtype=float16", "token2wav.dtype=float16"


def checked(checkpoint: Path, exported: Path, *assignments: str) -> list[Row]:
    few_steps = "token2wav.ode_steps=2"
    settings = Settings.read([f"checkpoint_dir={checkpoint}", few_steps, *assignments])
    resolved = settings.resolved(Machine(cores=1, gpu=False))
    return list(Check(resolved, REFERENCE, WORDS, exported).rows())


def wrong(rows: list[Row]) -> dict[str, str]:
    """What is wrong, by stage and precision."""
    return {f"{row.stage}, {row.precision}": row.wrong for row in rows if row.wrong}


def test_the_demo_voice_is_sound(capsys):
    arguments = [
        f"checkpoint_dir={DEMO_VOICE}",
        "--reference",
        str(REFERENCE),
        "--reference-text",
        WORDS,
        "device=cpu",
    ]
    assert main(arguments) == 0
    said = capsys.readouterr()
    assert re.findall(r"^\| (\w+) +\|.*\| ok +\|$", said.out, re.MULTILINE) == STAGES
    assert said.err == ""


@pytest.mark.parametrize(
    ("family", "precision"),
    [
        ("cosyvoice2", (*TORCH, "tensorrt_llm.dtype=bfloat16")),
        ("cosyvoice2", HALF),
        ("cosyvoice3", ()),
        ("cosyvoice3", HALF),
        ("cosyvoice300m", ()),
        ("cosyvoice300m", HALF),
    ],
)
def test_a_made_checkpoint_of_each_family_is_sound_in_each_precision(tmp_path, family, precision):
    checkpoint = make_checkpoint(tmp_path / "checkpoint", family=family)
    rows = checked(checkpoint, tmp_path, *precision)
    assert [row.stage for row in rows] == STAGES
    assert wrong(rows) == {}


@pytest.mark.parametrize(("weights", "pages"), [("int8", "float8"), ("int8_rows", "float16")])
def test_formats_of_onnx_runtime_are_sound(tiny_checkpoint, tmp_path, weights, pages):
    formats = f"tensorrt_llm.weight_format={weights}", f"token2wav.page_format={pages}"
    rows = checked(tiny_checkpoint, tmp_path, *formats)
    assert wrong(rows) == {}
    assert [row.precision for row in rows[-3:]] == [
        f"{weights} on onnx, cpu", f"{pages} on onnx, cpu", "float32 on onnx, cpu"
    ]  # fmt: skip


DOWN = "llm.model.model.layers.1.mlp.down_proj.weight"
FORWARD = "encoder.encoders.0.feed_forward.w_2.bias"
VELOCITY = "decoder.estimator.final_proj.bias"


@pytest.mark.parametrize(
    ("file", "tensor", "value", "stage", "module", "graph"),
    [
        ("llm.pt", DOWN, INFINITY, "speech_lm", "layers.1.mlp", "model.onnx"),
        ("flow.pt", FORWARD, NAN, "flow", "encoder.layers.0.narrow", "flow_encoder"),
        ("flow.pt", VELOCITY, INFINITY, "flow", "estimator.projection", "flow_estimator"),
        ("hift.pt", "f0_predictor.classifier.bias", NAN, "vocoder", "f0_predictor", "hift_f0"),
        ("hift.pt", "conv_post.bias", INFINITY, "vocoder", "decoder", "hift_decoder"),
    ],
)
def test_the_first_module_or_graph_that_breaks_is_named(
    tiny_checkpoint, tmp_path, file, tensor, value, stage, module, graph
):
    checkpoint = damaged(tiny_checkpoint, tmp_path / "checkpoint", file, tensor, value)
    found = wrong(checked(checkpoint, tmp_path))
    places = {f"{stage}, float32 on torch, cpu": module, f"{stage}, float32 on onnx, cpu": graph}
    assert set(found) == {"weights, as stored", *places}
    assert f"{tensor} holds NaN or infinity" in found["weights, as stored"]
    for row, place in places.items():
        assert found[row].startswith(f"first NaN or infinity out of {place}"), found[row]


@pytest.mark.parametrize(
    ("file", "initializer", "value", "stage", "node"),
    [
        ("speech_tokenizer_v2.onnx", "second", INFINITY, "speech_tokenizer", "quartered"),
        ("campplus.onnx", "weight", NAN, "speaker_encoder", "output"),
    ],
)
def test_the_first_value_that_breaks_in_an_extractor_is_named(
    tiny_checkpoint, tmp_path, file, initializer, value, stage, node
):
    checkpoint = damaged_graph(tiny_checkpoint, tmp_path / "checkpoint", file, initializer, value)
    found = wrong(checked(checkpoint, tmp_path))
    assert list(found) == [f"{stage}, float32 on onnx, cpu"]
    assert found[next(iter(found))] == f"first NaN or infinity out of {file}: {node}; its weights are damaged"


@pytest.mark.parametrize(
    ("file", "tensor", "stage", "variable"),
    [
        (
            "llm.pt", "llm.model.model.layers.0.mlp.down_proj.weight", "speech_lm",
            "COSYVOICE_TENSORRT_LLM__DTYPE=float32",
        ),
        (
            "flow.pt", "encoder.encoders.0.feed_forward.w_2.weight", "flow",
            "COSYVOICE_TOKEN2WAV__DTYPE=float32",
        ),
    ],
)  # fmt: skip
def test_what_is_too_large_for_half_precision_alone_is_told_the_setting(
    tiny_checkpoint, tmp_path, file, tensor, stage, variable
):
    large, row = 1e5, slice(0, 1)  # float16 ends at 65504
    checkpoint = damaged(tiny_checkpoint, tmp_path / "checkpoint", file, tensor, large, row)
    found = wrong(checked(checkpoint, tmp_path / "half", *HALF))
    assert list(found) == [f"{stage}, float16 on torch, cpu"]
    assert variable in found[next(iter(found))]
    wide = *TORCH, "tensorrt_llm.dtype=bfloat16", "token2wav.dtype=float32"
    narrow_no_more = wrong(checked(checkpoint, tmp_path / "wide", *wide))
    assert not any("NaN" in text for text in narrow_no_more.values())


@pytest.mark.parametrize(("damage", "status"), [(None, 0), (NAN, 1)])
def test_without_torch_what_can_be_looked_at_is(tiny_checkpoint, tmp_path, damage, status):
    checkpoint = tiny_checkpoint
    if damage is not None:
        checkpoint = damaged(tiny_checkpoint, tmp_path / "c", "flow.pt", VELOCITY, damage)
    program = "import sys; sys.modules['torch'] = None; from cosyvoice_runtime.check.__main__ import main"
    arguments = ["--reference", REFERENCE, "--reference-text", WORDS, f"checkpoint_dir={checkpoint}"]
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; sys.exit(main())", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == status, done.stderr
    assert "Not compared: anything with torch, which is not installed" in done.stdout
    if damage is not None:
        assert "check: flow, float32 on onnx, cpu: first NaN or infinity out of flow_estimator" in done.stderr


def test_a_checkpoint_that_is_none_is_one_line(tmp_path, capsys):
    arguments = ["--reference", str(REFERENCE), f"checkpoint_dir={tmp_path}"]
    assert main(arguments) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("check: ")
    assert said.err.count("\n") == 1


def spoken(scale: float = 1.0, shift: float = 0.0) -> RoundResult:
    numbers = np.random.default_rng(0).standard_normal((50, 40)).astype(np.float32)
    wave = np.sin(np.arange(1000, dtype=np.float32) / 7)
    changed = numbers + shift * numbers[::-1]
    return RoundResult([0] * 50, changed, changed, scale * wave, wave + np.float32(shift))


@pytest.mark.parametrize("compare", [of_logits, of_mel, of_samples])
def test_a_figure_beyond_its_limit_is_wrong_and_one_within_is_not(compare):
    assert compare(spoken(0.5, 1e-5), spoken(), "float32").wrong == ""
    assert compare(spoken(0.5, 0.5), spoken(), "float32").wrong
    assert compare(spoken(0.5, 0.5), spoken(), "float16").wrong


@pytest.mark.parametrize(
    ("scale", "told"), [(0.5, ""), (0.0, "the samples are silent"), (1.0, "of the samples are clipped")]
)
def test_silence_and_clipping_are_wrong(scale, told):
    assert told in of_samples(spoken(scale), None, "float32").wrong
    assert bool(told) == bool(of_samples(spoken(scale), None, "float32").wrong)
