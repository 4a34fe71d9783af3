"""The preflight of NVIDIA's container, on stand-ins: what passes, and every failure by its own line."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy
import onnx
import pytest
import torch
from safetensors.torch import load_file, save_file

from cosyvoice_runtime.lm.engines.tensorrt_llm import LIBRARIES
from cosyvoice_runtime.lm.engines.tensorrt_llm.convert import ConversionOptions, convert
from cosyvoice_runtime.preflight import checks, tensorrt_llm
from cosyvoice_runtime.preflight.__main__ import main
from cosyvoice_runtime.preflight.checks import Answer, ask, overloads
from cosyvoice_runtime.preflight.tensorrt_llm import known_flags
from cuda_fake import FakeCuda
from tensorrt_fake import fake_tensorrt
from trtllm_fake import FakeTrtllm, install, network

GPU = "NVIDIA H100 80GB HBM3, {driver}, 81559 MiB"
BINDINGS = "tensorrt_llm.bindings.executor"
TIMEOUT_S = 60.0


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeTrtllm:
    """The pinned container, with a GPU."""
    fake = install(monkeypatch, tmp_path / "fake")
    vars(sys.modules["tensorrt"]).update(vars(fake_tensorrt(FakeCuda(), LIBRARIES["tensorrt"])))
    monkeypatch.setattr(checks, "sys", SimpleNamespace(version_info=(3, 12, 3)))
    monkeypatch.setattr(torch.version, "cuda", "13.1")
    monkeypatch.setattr(checks, "cuda_of_driver", lambda: (13, 1))
    command(tmp_path, "nvidia-smi", f"echo '{GPU.format(driver='590.48.01')}'")
    command(tmp_path, "trial", """echo 'trial found: [["executor", [], "opened"]]'""")
    monkeypatch.setattr(tensorrt_llm, "TRIAL", [str(tmp_path / "fake" / "bin" / "trial")])
    return fake


def command(tmp_path: Path, name: str, script: str) -> None:
    """A command in front of all others."""
    path = tmp_path / "fake" / "bin" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture(scope="module")
def checkpoints(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``checkpoints(**options)`` converts the tiny checkpoint, once for each set of options."""
    made: dict[ConversionOptions, Path] = {}

    def convert_once(**options) -> Path:
        wanted = ConversionOptions(**options)
        if wanted not in made:
            made[wanted] = tmp_path_factory.mktemp("converted") / "out"
            convert(tiny_checkpoint, made[wanted], wanted)
        return made[wanted]

    return convert_once


@pytest.fixture
def report(fake, checkpoints, capsys) -> Callable[..., tuple[int, dict[str, str]]]:
    """``report(checkpoint)`` gives the exit status, and what did not pass by what was looked at."""

    def run(checkpoint: Path | None = None, *more: str) -> tuple[int, dict[str, str]]:
        status = main(["--checkpoint", str(checkpoint or checkpoints()), *more])
        lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[:-1]]
        words = [(verdict, *rest.split("  ", 1)) for verdict, rest in lines if verdict != "pass"]
        return status, {name: f"{verdict} {text.strip()}" for verdict, name, text in words}

    return run


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"layout": "speech"},
        {"tp_size": 2},
        {"weight_only": "int8"},
        {"weight_only": "int4"},
        {"weight_only": "fp8"},
    ],
    ids=str,
)
def test_pinned_container_passes(report, checkpoints, options):
    assert report(checkpoints(**options)) == (0, {})


def test_table_names_everything_that_was_looked_at(fake, checkpoints, capsys):
    assert main(["--checkpoint", str(checkpoints(layout="speech", tp_size=2))]) == 0
    out = capsys.readouterr().out
    for about in ("python", "tensorrt_llm", "driver", "--use_paged_context_fmha", f"{BINDINGS}.Request"):
        assert about in out
    assert "rank1.safetensors" in out
    assert "20 tensors" in out
    assert out.endswith(" pass, 0 FAIL, 0 unchecked\n")


def test_small_engine_is_tried_with_the_checkpoint_s_layout_unless_something_failed(
    report, checkpoints, tmp_path, monkeypatch
):
    command(tmp_path, "trial", """echo "trial found: [[\\"executor\\", [\\"$*\\"], \\"\\"]]\"""")
    assert report(checkpoints(layout="speech")) == (1, {"trial: executor": "FAIL speech bfloat16"})
    monkeypatch.setattr(torch.version, "cuda", "12.9")
    assert report()[1].keys() == {"cuda of torch"}


def test_without_a_checkpoint_something_is_unchecked(fake, capsys):
    assert main([]) == 2
    assert "unchecked  converted checkpoint" in capsys.readouterr().out


def test_other_versions_fail(report, monkeypatch):
    monkeypatch.setattr(checks, "sys", SimpleNamespace(version_info=(3, 99, 1)))
    monkeypatch.setattr(numpy, "__version__", "2.3.5")
    monkeypatch.setattr(torch.version, "cuda", "12.9")
    monkeypatch.setattr(sys.modules["tensorrt"], "__version__", "11.4.0.106")
    status, wrong = report()
    assert status == 1
    assert wrong.keys() == {"python", "cuda of torch", "tensorrt", "numpy"}
    assert "FAIL 2.3.5, but written for 1.26.4 (nvcr.io/nvidia/" in wrong["numpy"]
    assert "FAIL 11.4.0.106, but written for 10.14.1.48 (nvcr.io/nvidia/" in wrong["tensorrt"]


def test_missing_library_fails_and_leaves_its_symbols_unchecked(report, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("tensorrt_llm")]:
        monkeypatch.delitem(sys.modules, name)
    status, wrong = report()
    assert status == 1
    assert "FAIL tensorrt_llm can't be imported" in wrong.pop("tensorrt_llm")
    assert len(wrong) == 4
    assert all(text.startswith("unchecked tensorrt_llm.") for text in wrong.values())


def test_container_without_gpu_fails(report, fake, tmp_path, monkeypatch):
    (tmp_path / "fake" / "bin" / "nvidia-smi").unlink()
    monkeypatch.setenv("PATH", f"{tmp_path}/fake/bin")
    status, wrong = report()
    hint = "; the container needs --gpus all"
    assert (status, wrong) == (1, {"gpu": f"FAIL nvidia-smi is not installed{hint}"})
    command(tmp_path, "nvidia-smi", "echo 'No devices were found'; exit 6")
    failure = "ends with status 6: No devices were found"
    assert report()[1] == {"gpu": f"FAIL nvidia-smi {failure}{hint}"}


@pytest.mark.parametrize(
    ("timeout", "program", "check", "told"),
    [
        ("checks.TIMEOUT_S", "nvidia-smi", "gpu", "FAIL nvidia-smi has not answered within 0.2 s; "),
        (
            "tensorrt_llm.BUILD_TIMEOUT_S",
            "trtllm-build",
            "trtllm-build",
            "FAIL has not answered within 0.2 s",
        ),
    ],
)
def test_program_that_hangs_fails(report, tmp_path, monkeypatch, timeout, program, check, told):
    monkeypatch.setattr(f"cosyvoice_runtime.preflight.{timeout}", 0.2)
    command(tmp_path, program, "exec sleep 600")
    status, wrong = report()
    assert (status, list(wrong)) == (1, [check])
    assert wrong[check].startswith(told)


def test_program_that_can_not_be_killed_is_left(monkeypatch):
    """As one is that waits in the kernel for a driver that hangs (state D)."""
    asked: list[subprocess.Popen[str]] = []
    monkeypatch.setattr(subprocess.Popen, "kill", lambda program: asked.append(program))
    answers: list[Answer] = []
    asking = threading.Thread(target=lambda: answers.append(ask(["sleep", "600"], 0.1)), daemon=True)
    asking.start()
    asking.join(TIMEOUT_S)
    monkeypatch.undo()
    for program in asked:
        program.kill()
    assert answers == [Answer("", "has not answered within 0.1 s")]


@pytest.mark.parametrize(
    ("version", "cuda", "status", "text"),
    [
        ("590.44.01", None, 0, None),
        ("601.10", None, 0, None),
        ("580.95.05", (13, 1), 0, None),
        ("580.95.05", (13, 0), 0, "warning 580.95.05 supports CUDA 13.0, nvcr.io/nvidia/tritonserver:26.07"),
        ("590.43", (13, 0), 0, "warning 590.43 supports CUDA 13.0"),
        ("570.133.20", (13, 0), 0, "warning 570.133.20 supports CUDA 13.0"),
        ("570.133.20", (12, 8), 1, "FAIL 570.133.20 supports CUDA 12.8"),
        ("580.95.05", None, 2, "unchecked 580.95.05 is older than 590.44, and there is no libcuda to ask"),
    ],
)
def test_driver_is_new_enough_or_the_compatibility_package_stands_in(
    report, tmp_path, monkeypatch, version, cuda, status, text
):
    command(tmp_path, "nvidia-smi", f"echo '{GPU.format(driver=version)}'")
    monkeypatch.setattr(checks, "cuda_of_driver", lambda: cuda)
    found, wrong = report()
    assert found == status
    assert (wrong == {}) if text is None else wrong["driver"].startswith(text)


def test_driver_of_the_same_cuda_is_a_failure_where_somebody_insists(report, tmp_path, monkeypatch):
    command(tmp_path, "nvidia-smi", f"echo '{GPU.format(driver='580.95.05')}'")
    monkeypatch.setattr(checks, "cuda_of_driver", lambda: (13, 0))
    status, wrong = report(None, "--strict")
    assert (status, list(wrong)) == (1, ["driver"])
    assert wrong["driver"].endswith(
        "has 13.1: runs by minor version compatibility from 580 on, but for PTX compiled at run time; "
        "590.44 has all of it"
    )


def test_remedy_for_an_older_driver_passes_the_preflight(report, tmp_path, monkeypatch):
    """It names a driver, which is then accepted, and no other container, which is not."""
    command(tmp_path, "nvidia-smi", f"echo '{GPU.format(driver='570.133.20')}'")
    monkeypatch.setattr(checks, "cuda_of_driver", lambda: (12, 8))
    remedy = re.search(
        r"update it to (\d+) or newer, at best to 590\.44, or on a data-centre", report()[1]["driver"]
    )
    command(tmp_path, "nvidia-smi", f"echo '{GPU.format(driver=remedy[1])}'")
    monkeypatch.setattr(checks, "cuda_of_driver", lambda: (13, 0))
    assert report()[0] == 0


@pytest.mark.parametrize(
    ("cuda", "status", "text"),
    [
        ("13.0", 0, "warning 13.0, but written for 13.1"),
        ("13.3", 0, "warning 13.3, but written for 13.1"),
        ("12.9", 1, "FAIL 12.9, but written for 13.1"),
        ("None", 1, "FAIL None, but written for 13.1"),
    ],
)
def test_torch_of_another_minor_version_of_cuda_is_a_warning(report, monkeypatch, cuda, status, text):
    monkeypatch.setattr(torch.version, "cuda", cuda)
    found, wrong = report()
    assert found == status
    assert wrong["cuda of torch"].startswith(text)


def test_flag_that_is_gone_or_takes_another_value_fails(report, tmp_path):
    known = json.loads((Path(network.__file__).parent / "build_flags.json").read_text())
    del known["use_paged_context_fmha"]
    known["gemm_plugin"] = ["fp8", "disable"]
    values = {
        name: f"{{{','.join(kind)}}}" if isinstance(kind, list) else "X" for name, kind in known.items()
    }
    usage = " ".join(f"[--{name} {value}]" for name, value in values.items())
    command(tmp_path, "trtllm-build", f"echo '{usage}'")
    assert report() == (
        1,
        {
            "trtllm-build --use_paged_context_fmha": "FAIL this trtllm-build has no such flag",
            "trtllm-build --gemm_plugin": "FAIL bfloat16 is passed, but accepted are disable, fp8",
        },
    )


def test_trtllm_build_that_does_not_start_fails(report, tmp_path, monkeypatch):
    command(tmp_path, "trtllm-build", "echo 'libnvinfer.so.10: cannot open' >&2; exit 127")
    assert report() == (
        1,
        {"trtllm-build": "FAIL ends with status 127: libnvinfer.so.10: cannot open"},
    )
    (tmp_path / "fake" / "bin" / "trtllm-build").unlink()
    assert report()[1] == {"trtllm-build": "FAIL is not installed"}


def test_help_of_argparse_is_read_with_its_choices():
    known = known_flags("usage: x [-h] [--a A] [--b {c,d}]\n\n  --a A   about\n  --b {c,d}\n  --flag")
    assert known == {"a": set(), "b": {"c", "d"}, "flag": set()}


def test_symbols_that_are_gone_or_changed_fail(report, monkeypatch):
    class Request:
        BATCHED_POST_PROCESSOR_NAME = "batched"

        def __init__(self, input_token_ids, max_new_tokens, *, streaming, sampling_config, output_config):
            pass

    class Response:
        request_id = has_error = result = None

    bindings = sys.modules[BINDINGS]
    monkeypatch.setattr(bindings, "Request", Request)
    monkeypatch.setattr(bindings, "Response", Response)
    monkeypatch.delattr(bindings, "OutputConfig")
    status, wrong = report()
    assert status == 1
    assert wrong == {
        f"{BINDINGS}.Request": (
            "FAIL takes no max_tokens; takes no end_id; takes no pad_id; takes no stop_words; "
            "takes no embedding_bias; takes no logits_post_processor_name; takes no client_id"
        ),
        f"{BINDINGS}.Response": "FAIL has no error_msg",
        f"{BINDINGS}.OutputConfig": "FAIL does not exist",
    }


def test_signature_that_can_not_be_read_is_unchecked(report, monkeypatch):
    class ParallelConfig:
        def __init__(self, device_ids):
            pass

        __init__.__signature__ = "hidden"

    monkeypatch.setattr(sys.modules[BINDINGS], "ParallelConfig", ParallelConfig)
    assert report() == (2, {f"{BINDINGS}.ParallelConfig": "unchecked its parameters can't be read"})


def test_parameters_of_a_nanobind_class_are_read_from_its_documentation():
    schema = onnx.onnx_cpp2py_export.defs.OpSchema
    assert type(schema.__init__).__module__ == "nanobind"
    (names,) = overloads(schema.__init__)
    assert names == {
        "self",
        "name",
        "domain",
        "since_version",
        "doc",
        "inputs",
        "outputs",
        "type_constraints",
        "attributes",
        "node_determinism",
    }


def test_every_overload_of_a_nanobind_function_is_read():
    assert overloads(onnx.onnx_cpp2py_export.defs.get_schema) == [
        {"op_type", "max_inclusive_version", "domain"},
        {"op_type", "domain"},
    ]


def test_tables_that_the_model_computes_itself_are_no_weights(report, checkpoints):
    """The model registers them as parameters, no checkpoint has them, and the loader asks for none."""
    config = network.PretrainedConfig.from_checkpoint(str(checkpoints()))
    buffers = {name for name, value in network.QWenForCausalLM(config).named_parameters() if value.is_buffer}
    assert {name.rpartition(".")[2] for name in buffers} == set(network.BUFFERS)
    assert not buffers & load_file(checkpoints() / "rank0.safetensors").keys()
    assert report() == (0, {})


def test_tensor_that_is_missing_misshapen_or_foreign_fails(report, checkpoints, tmp_path):
    directory = shutil.copytree(checkpoints(layout="speech"), tmp_path / "damaged")
    tensors = load_file(directory / "rank0.safetensors")
    del tensors["lm_head.bias"]
    tensors["transformer.ln_f.weight"] = tensors["transformer.ln_f.weight"][:-1].clone()
    tensors["lm_head.weights"] = torch.zeros(1)
    save_file(tensors, directory / "rank0.safetensors")
    assert report(directory) == (
        1,
        {
            f"{directory}/rank0.safetensors": (
                "FAIL lm_head.bias is missing; lm_head.weights is unknown to the model; "
                "transformer.ln_f.weight is (63,), the model asks for (64,)"
            )
        },
    )


def test_model_class_of_another_make_fails_briefly(report, checkpoints, monkeypatch):
    monkeypatch.setattr(network, "QUANTISED", ())
    status, wrong = report(checkpoints(weight_only="int8"))
    (text,) = wrong.values()
    assert status == 1
    assert "per_channel_scale is unknown to the model" in text
    assert text.endswith("and 15 more")


def test_directory_that_is_no_checkpoint_fails(report, tiny_checkpoint):
    status, wrong = report(tiny_checkpoint)
    assert status == 1
    assert "is no converted checkpoint" in wrong[str(tiny_checkpoint)]
