"""The image: pinned, complete, without root, and started by what also starts without a container."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType

import docker_image
import pytest
from docker_image import FINAL, ROOT, final, instructions, of
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from tritonclient.grpc import service_pb2
from tritonclient.grpc.service_pb2_grpc import GRPC_GENERATED_VERSION

from cosyvoice_runtime import __version__
from cosyvoice_runtime.checkpoint.checksums import sha256_of
from cosyvoice_runtime.lm.engines.tensorrt_llm import TRTLLM_CONTAINER
from cosyvoice_runtime.lm.engines.vllm import VLLM_CONTAINERS

FLAVOURS = ("gpu", "trtllm", "vllm", "cpu")
REQUIREMENTS = ROOT / "requirements"


def pip_installs() -> list[list[str]]:
    """Arguments of every ``pip install``, also where it installs into another environment."""
    commands = [command for entry in of("RUN") for command in entry.values[0].split("&&")]
    words = [shlex.split(command) for command in commands if re.search(r"-m pip .*\binstall\b", command)]
    return [command[command.index("install") + 1 :] for command in words]


def test_containers_are_the_ones_that_the_engines_are_written_for():
    assert docker_image.bases()["trtllm"] == TRTLLM_CONTAINER
    assert docker_image.bases()["vllm"] == VLLM_CONTAINERS["0.24.0"]
    assert docker_image.bases(TRITON="26.08")["vllm"] == VLLM_CONTAINERS["0.27.1"]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_every_image_is_pinned(flavour):
    stages = docker_image.bases(FLAVOUR=flavour)
    assert stages[FINAL] == flavour
    images = {image for image in stages.values() if image not in stages} - {"scratch"}
    assert len(images) == 4
    for image in images:
        pinned = r":(\d+\.\d+\.\d+-[\w-]+@sha256:[0-9a-f]{64}|\d\d\.\d\d-(\w+-python-)?py3)$"
        assert re.search(pinned, image), image


def test_gpu_is_the_default_and_an_older_release_of_triton_can_be_named():
    assert docker_image.bases()[FINAL] == "gpu"
    assert docker_image.bases()["gpu"] == "nvcr.io/nvidia/tritonserver:26.10-py3"
    older = docker_image.bases(TRITON="26.02")
    assert older["gpu"] == "nvcr.io/nvidia/tritonserver:26.02-py3"
    assert older["trtllm"] == TRTLLM_CONTAINER  # the last of its line


def test_gpu_has_an_environment_of_its_own_with_all_that_is_locked_but_another_server():
    """The words by which the Dockerfile leaves it out, run on the lock file."""
    [_, server, _] = (entry.values[0] for entry in of("RUN", "gpu"))
    [left_out] = re.findall(r"sed '(.+)' /packages/cpu.txt > /packages/server.txt", server)
    command = ["sed", left_out, REQUIREMENTS / "cpu.txt"]
    kept = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    locked = re.compile(r"^(\S+)==\S+(?: \\\n    --hash=sha256:\w{64})+\n    #", re.MULTILINE)
    everything = set(locked.findall((REQUIREMENTS / "cpu.txt").read_text("utf-8")))
    assert set(locked.findall(kept)) == everything - {"nvidia-pytriton"}
    assert "/opt/venv/bin:" in dict(zip(*[iter(of("ENV", "gpu")[0].values)] * 2, strict=True))["PATH"]


def test_torch_of_the_image_brings_the_cuda_whose_drivers_the_image_takes():
    pins = dict(re.findall(r"^([\w-]+)==(\S+)", (REQUIREMENTS / "gpu.txt").read_text("utf-8"), re.MULTILINE))
    assert pins["cuda-toolkit"].startswith("13.0.")
    assert f"torch=={pins['torch']}  #" in (REQUIREMENTS / "torch.in").read_text("utf-8")
    assert f"triton=={pins['triton']}" in (REQUIREMENTS / "torch.in").read_text("utf-8")


def test_every_copied_file_exists_and_is_sent_to_the_builder():
    for copy in of("COPY"):
        if copy.flags:
            [stage] = copy.flags
            assert stage.removeprefix("--from=") in docker_image.bases()
            continue
        for source in copy.values[:-1]:
            assert (ROOT / source).exists(), source
            assert source == "." or docker_image.in_context(source), source


def test_what_the_server_needs_is_in_the_image_and_what_it_makes_is_not():
    for path in ("run.sh", "model_repo/token2wav/config.pbtxt", "scripts/health.py", "deploy/gpu.toml"):
        assert docker_image.in_context(path), path
    for path in (".git", ".env", "checkpoints/a", "engines/b", "tests/conftest.py", ".venv/bin/python"):
        assert not docker_image.in_context(path), path
    assert not docker_image.in_context("cosyvoice_runtime/__pycache__/errors.pyc")


def test_nothing_is_installed_unpinned():
    assert pip_installs()
    for arguments in pip_installs():
        assert "--no-deps" in arguments
        named = [word for word in arguments if not word.startswith("-") and not word.endswith(".txt")]
        assert all(word.endswith(".whl") for word in named), arguments
        assert named or "--require-hashes" in arguments


def test_nothing_is_fetched_by_other_means():
    for entry in of("RUN"):
        assert not re.search(r"\b(git|curl|wget|apt-get|apt|conda)\b", entry.values[0])


@pytest.mark.parametrize("stage", ["front", "server"])
def test_image_says_its_version_and_its_commit(stage):
    [label] = docker_image.of("LABEL", stage)
    said = dict(zip(label.values[::2], (value.strip('"') for value in label.values[1::2]), strict=True))
    assert said["org.opencontainers.image.version"] == __version__
    assert said["org.opencontainers.image.revision"] == "${COMMIT}"
    assert docker_image.arguments()["COMMIT"] == ""
    assert "COMMIT" in [entry.values[0] for entry in docker_image.of("ARG", stage)]


def test_server_runs_without_root():
    users = {entry.stage: entry.values for entry in of("USER")}  # the last one of each stage
    assert users == {
        FINAL: ("10001",),
        "front": ("10001",),
        "dynamo": ("10001",),
        "inventory": ("root",),
    }
    assert "useradd --uid 10001" in final("RUN").values[0]


def test_container_starts_with_all_stages_and_installs_nothing():
    *_, last = instructions()
    assert last == (FINAL, "CMD", (), ("bash", "run.sh", "0", "3"))
    assert docker_image.environment()["VENV"] == "system"


def test_health_check_has_time_to_start():
    check = final("HEALTHCHECK")
    assert check.values == ("CMD", "python3", "scripts/health.py")
    assert {flag.partition("=")[0] for flag in check.flags} >= {"--start-period", "--timeout", "--interval"}


def loaded(name: str) -> ModuleType:
    """A file of scripts/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def script() -> ModuleType:
    return loaded("container_packages")


@pytest.mark.parametrize("stage", [*FLAVOURS, "front", "dynamo"])
def test_bill_of_materials_is_of_any_image_and_in_none(stage):
    stages = docker_image.bases(SBOM_OF=stage)
    assert stages["inventory"] == stage
    assert "inventory" not in stages.values()
    [written] = of("COPY", "sbom")
    assert written.values == ("/sbom", "/")
    assert of("RUN", "inventory")[0].values[0].endswith("python3 scripts/sbom.py /sbom")


def test_bill_of_materials_is_written_by_pinned_programs_beside_what_it_describes(tmp_path):
    made, installed, *described = loaded("sbom").commands(tmp_path, "/opt/venv/bin/python", tmp_path / "out")
    assert made[-2:] == ["--without-pip", tmp_path]
    assert {"--no-deps", "--require-hashes", REQUIREMENTS / "sbom.txt"} <= set(installed)
    assert all(words[0] == tmp_path / "bin" / "python" for words in described)
    assert all("/opt/venv/bin/python" in str(words) for words in described)


def test_environment_without_pip_is_described_by_the_pip_of_its_interpreter(tmp_path, monkeypatch):
    """As the one of flavour gpu."""
    script = loaded("sbom")
    monkeypatch.setattr(script, "find_spec", {}.get)
    _, installed, *_ = script.commands(tmp_path, "/opt/venv/bin/python", tmp_path / "out")
    assert installed[0] == Path(sys.base_exec_prefix, "bin", "python3")


def test_bill_of_materials_that_can_not_be_written_is_an_error(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert loaded("sbom").main([str(tmp_path / "file")]) == 1
    assert capsys.readouterr().err.startswith("sbom: [Errno 17] File exists")


@pytest.mark.parametrize("flavour", ["gpu", "trtllm"])
def test_replay_runs_every_step_of_nvidias_image(flavour, tmp_path):
    """Without the places that only an image has; the imports are the end."""
    replay, dockerfile = loaded("replay_image"), (ROOT / "Dockerfile").read_text("utf-8")
    commands = {stage: list(replay.steps(dockerfile, stage, tmp_path)) for stage in ("wheel", flavour)}
    for stage, found in commands.items():
        assert len(found) == len(of("RUN", stage))
        places = r"(?<![\w.])/(packages|wheels|opt|usr)|\$\{"
        assert not [command for command in found if re.search(places, command.replace(str(tmp_path), "here"))]
    assert commands[flavour][-1].endswith('tritonclient.grpc, tritonclient.http"')
    for command in (word for found in commands.values() for words in found for word in words.split()):
        if command.startswith(("scripts/", "requirements/")):
            assert (ROOT / command).is_file(), command


def test_container_of_the_replay_is_pinned_and_lacks_what_the_image_must_replace(script, monkeypatch):
    pins = [
        line.partition("#")[0].strip() for line in (REQUIREMENTS / "container.txt").read_text().splitlines()
    ]
    present = dict(pin.split("==") for pin in pins if pin)
    files = [REQUIREMENTS / "nvidia.txt", REQUIREMENTS / "nvidia-trtllm.txt"]
    installed = installed_beside(script, monkeypatch, files, present)
    assert {"numpy==1.26.4", "grpcio==1.85.1", "protobuf==6.33.6"} <= set(installed)
    assert not [package for package in installed if package.startswith(("torch==", "onnx==", "tokenizers=="))]


def installed_beside(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, files: list[Path], present: dict[str, str]
) -> list[str]:
    """What the script installs in a container with these packages."""
    asked: list[str] = []
    monkeypatch.setattr(script, "installed", present.get)
    monkeypatch.setattr(script, "install", lambda packages, _: asked.extend(packages) or 0)
    assert script.main([*map(str, files), "--lock", str(REQUIREMENTS / "cpu.txt")]) == 0
    return asked


def test_package_that_the_container_has_stays_unless_it_is_too_old(script, tmp_path, monkeypatch, capsys):
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(
        "# why\n\ntokenizers==0.23.3  # text\nPyYAML>=5.1,==6.0.3\nwetext==0.1.8\ngrpcio>=1.81.1,==1.85.1\n"
    )
    present = {"tokenizers": "0.22.1", "PyYAML": "6.0.3", "grpcio": "1.62.1"}
    missing = ["wetext==0.1.8", "grpcio==1.85.1"]
    assert installed_beside(script, monkeypatch, [requirements], present) == missing
    told = capsys.readouterr().out
    assert "tokenizers 0.22.1 stays; pinned is 0.23.3\n" in told
    assert "PyYAML 6.0.3 stays\n" in told
    assert "grpcio 1.62.1 is replaced, needed is >=1.81.1; pinned is 1.85.1\n" in told


@pytest.mark.parametrize("flavour", ["trtllm", "vllm"])
def test_numpy_is_the_one_that_the_bindings_of_tensorrt_were_compiled_for(script, monkeypatch, flavour):
    names = [word for word in of("RUN", flavour)[0].values[0].split() if word.startswith("/packages/nvidia")]
    files = [REQUIREMENTS / Path(name).name for name in names]
    everything = {pin.name: pin.version for pin in script.pins(files[0])}
    replaced = ["numpy==1.26.4"] if flavour == "trtllm" else []
    assert installed_beside(script, monkeypatch, files, everything | {"numpy": "2.3.5"}) == replaced
    assert installed_beside(script, monkeypatch, files, everything | {"numpy": "1.26.4"}) == []


def test_version_that_stays_is_new_enough_for_every_package_that_asks_for_it(script):
    """What the packages say themselves, and what the generated code of tritonclient checks at its import."""
    pins = {canonicalize_name(pin.name): pin for pin in script.pins(REQUIREMENTS / "nvidia.txt")}
    for name, pin in pins.items():
        asking = distribution(pin.name)
        assert asking.version == pin.version
        for asked in map(Requirement, asking.requires or ()):
            wanted = pins.get(canonicalize_name(asked.name))
            if wanted and asked.marker is None:
                oldest = [bound.version for bound in asked.specifier if bound.operator == ">="]
                older = [version for version in oldest if not _at_least(wanted, version)]
                assert not older, f"{name} asks for {asked}"
    assert _at_least(pins["grpcio"], GRPC_GENERATED_VERSION)
    [generated] = re.findall(r"Protobuf Python Version: (\S+)", Path(service_pb2.__file__).read_text("utf-8"))
    assert _at_least(pins["protobuf"], generated)


def _at_least(pin, version: str) -> bool:
    """Whether nothing older than a version may stay."""
    bounds = [Version(bound.version) for bound in pin.accepted if bound.operator == ">="]
    return bool(bounds) and max(bounds) >= Version(version)


def test_lock_file_has_hashes_of_all_that_a_container_may_lack(script):
    files = [REQUIREMENTS / "nvidia.txt", REQUIREMENTS / "nvidia-trtllm.txt"]
    wanted = [f"{pin.name}=={pin.version}" for file in files for pin in script.pins(file)]
    entries = script.locked(wanted, REQUIREMENTS / "cpu.txt")
    assert len(entries) == len(wanted)
    assert all(re.fullmatch(r"\S+==\S+(?: \\\n    --hash=sha256:\w{64})+\n", entry) for entry in entries)


@pytest.mark.parametrize("missing", ["nothing==1.0", "numpy==2.3.5", "nump==1.26.4"])
def test_package_that_is_not_locked_so_is_an_error(script, missing):
    with pytest.raises(SystemExit, match=f"cpu.txt does not lock {missing}"):
        script.locked(["numpy==1.26.4", missing], REQUIREMENTS / "cpu.txt")


@pytest.mark.parametrize("right", [True, False])
def test_container_gets_the_locked_file_or_none(script, tmp_path, monkeypatch, right):
    """pip itself, with a wheel in a folder in place of an index."""
    wheel = tmp_path / "here" / "tiny-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "")
        archive.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": wheel.parent, "TARGET": tmp_path / "there"}.items():
        monkeypatch.setenv(f"PIP_{name}", str(value))
    lock = tmp_path / "lock.txt"
    lock.write_text(f"tiny==1.0 \\\n    --hash=sha256:{sha256_of(wheel) if right else '0' * 64}\n    # via\n")
    assert (script.install(["Tiny==1.0"], lock) == 0) is right
    assert (tmp_path / "there" / "tiny.py").exists() is right


def test_requirement_that_pins_nothing_is_an_error(script, tmp_path):
    path = tmp_path / "requirements.txt"
    path.write_text("wetext>=0.1\n")
    with pytest.raises(SystemExit, match=r"wetext>=0\.1 is not pinned"):
        script.main([str(path), "--lock", str(path)])


def test_real_requirements_are_read_and_real_packages_found(script):
    assert "safetensors" in {pin.name for pin in script.pins(REQUIREMENTS / "nvidia.txt")}
    assert script.installed("pytest")
    assert script.installed("no-such-package-of-ours") is None
