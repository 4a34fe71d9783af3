#!/usr/bin/env python3
"""Make a virtual environment that runs the whole product on a machine without a GPU.

    python3 scripts/environment.py            what the server and the clients need
    python3 scripts/environment.py --no-torch on ONNX Runtime and numpy alone, 1 GB less
    python3 scripts/environment.py --front    and what the front needs
    python3 scripts/environment.py --test     and what the front and the tests need
    python3 scripts/environment.py --clients  and other people's clients, for tests/front/clients

Needs Linux on x86_64 and Python 3.11 or 3.12 with venv and libpython. Nothing is done when the environment
already holds what requirements/ asks for.

uv installs the packages, fetched when it is not on PATH; pip does where uv can't be had. pip's settings say
where packages come from, for both. The build of torch on PyPI brings CUDA with it (several GB, and it runs
without a GPU too); where pip is told of a CPU build, by PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS, that build is
taken.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from base_python import SetupError, find_python

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
BINDINGS, TORCH, CLIENTS, TEST = "bindings", "torch", "clients", "test"
TORCH_WANTED = ["-r", str(REQUIREMENTS / "torch.in")]
"""Without hashes: an index with CPU builds has others, and what torch asks for depends on the build."""
GLIBC = (2, 35)
FREE_GIB = 1.5
"""Without torch."""
CPU_TORCH_GIB = {"uv": 1.0, "pip": 1.5}
CUDA_TORCH_GIB = {"uv": 5.0, "pip": 10.0}
"""Further room that torch takes while uv or pip installs it: a CPU build, and one with the libraries of CUDA.

Those of torch 2.13 on PyPI have 2.6 GiB as files and 4.6 installed. uv unpacks while it fetches, and links
what is in its cache; pip keeps each file twice until all are unpacked.
"""
UV = "uv==0.13.9"
UV_VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "no-cache-dir": "UV_NO_CACHE",
    "cert": "SSL_CERT_FILE",
}
"""Settings of pip and the variables by which uv takes the same."""
SMOKE_TEST = """
import cosyvoice_runtime, numpy, onnxruntime, tokenizers, tritonclient.grpc
assert numpy.__version__.startswith("1."), "numpy " + numpy.__version__
print("numpy", numpy.__version__, "onnxruntime", onnxruntime.__version__)
"""
TORCH_TEST = "import torch; print('torch', torch.__version__)"
REASONS = {
    r"No space left on device": "the disk is full",
    r"Temporary failure in name resolution|Max retries exceeded|NewConnectionError|Network is unreachable"
    r"|error sending request|dns error": (
        "the package index can't be reached; PIP_INDEX_URL names another one"
    ),
    r"No matching distribution found for|No solution found": (
        "the package index does not have a package listed here"
    ),
    r"DO NOT MATCH THE HASHES|Hash mismatch": (
        "the package index has another file than the one that is locked here: nothing of it was installed"
    ),
}
"""Messages of pip and uv, and their meaning."""
PROGRESS = re.compile(
    r"(?:Collecting|Processing|Downloading|Requirement already satisfied:) (?:\S*/)?(\S+)"
    r"|((?:Prepared|Installed) .+)"
)
"""Lines of pip and of uv that tell how far they are."""


class NoRoomError(SetupError):
    """The disk has less free than what is going to be installed takes."""


INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


class Installer(NamedTuple):
    """A program that installs packages: ``command`` takes the arguments of ``pip install``."""

    name: str
    command: list[str]
    environment: dict[str, str]


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        make(options.venv.absolute(), wanted_parts(options), options.python, options.installer)
    except SetupError as error:
        print(f"environment: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"environment: {error}: --venv (VENV of run.sh) names another place", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("environment: interrupted; the same command goes on with it", file=sys.stderr)
        return INTERRUPTED
    return 0


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="default: .venv of the checkout")
    parser.add_argument(
        "--torch", action=argparse.BooleanOptionalAction, default=True, help="also torch (default)"
    )
    parser.add_argument("--front", action="store_true", help="also what the front needs")
    parser.add_argument("--test", action="store_true", help="also what the front and the tests need")
    parser.add_argument("--clients", action="store_true", help="also LiveKit's, Pipecat's and Node's clients")
    parser.add_argument(
        "--installer", choices=("uv", "pip"), help="default: uv, or pip where uv can't be had"
    )
    parser.add_argument("--python", help="base interpreter; default: the first fitting one on PATH")
    return parser


def wanted_parts(options: argparse.Namespace) -> list[str]:
    """Files of requirements/, by their names."""
    parts = ["cpu"]
    if options.torch or options.test:
        parts.append(TORCH)
    if options.front or options.test or options.clients:
        parts.append("front")
    if options.test:
        parts += [TEST, "fleet", BINDINGS]
    return [*parts, CLIENTS] if options.clients else parts


def make(venv: Path, parts: list[str], python: str | None, installer: str | None = None) -> None:
    """Bring an environment up to date with the named files of requirements/."""
    wanted = {part: digest_of(part) for part in parts}
    before = _stamp(venv)
    if before.items() >= wanted.items():
        print(f"{venv}: up to date, nothing to do")
        return
    started = time.monotonic()
    check_platform()
    check_temporary()
    check_room(venv, FREE_GIB)
    if not (venv / "bin" / "pip").exists():
        base = find_python(python)
        print(f"{venv}: made with {base}")
        run([base, "-m", "venv", "--clear", str(venv)], "the virtual environment can't be made")
    # Until all is there, the environment is none of what it was.
    _stamp_path(venv).unlink(missing_ok=True)
    install(venv, parts, installer)
    for test in [SMOKE_TEST, TORCH_TEST] if TORCH in parts else [SMOKE_TEST]:
        run([str(venv / "bin" / "python"), "-c", test], "the environment does not work", show=True)
    _stamp_path(venv).write_text(json.dumps(before | wanted), encoding="utf-8")
    print(f"{venv}: ready after {time.monotonic() - started:.0f} s")


def check_platform() -> None:
    """Raise a SetupError where the machine can't run the server's package."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise SetupError(f"Linux on x86_64 is needed, this is {platform.system()} on {platform.machine()}")
    library, version = platform.libc_ver()
    if library != "glibc" or tuple(map(int, version.split("."))) < GLIBC:
        raise SetupError(f"glibc {GLIBC[0]}.{GLIBC[1]} or newer is needed, this is {library} {version}")


def check_temporary() -> None:
    """Raise a SetupError for a '$' in the path of temporary files, which setuptools takes for a variable."""
    if "$" in tempfile.gettempdir():
        raise SetupError(
            f"TMPDIR is {tempfile.gettempdir()!r}: its path may have no '$' while packages install"
        )


def check_room(venv: Path, needed_gib: float, hint: str = "") -> None:
    """Raise a NoRoomError where the environment's disk has less free."""
    free = shutil.disk_usage(next(folder for folder in venv.parents if folder.exists())).free / 2**30
    if free < needed_gib:
        raise NoRoomError(f"{venv.parent} has {free:.1f} GiB free, {needed_gib:g} are needed{hint}")


def check_torch_room(installer: Installer, venv: Path) -> None:
    """Raise a NoRoomError where the disk has no room for the build of torch that will be installed."""
    if not brings_cuda(installer):
        check_room(venv, FREE_GIB + CPU_TORCH_GIB[installer.name])
        return
    check_room(
        venv,
        FREE_GIB + CUDA_TORCH_GIB[installer.name],
        ": torch brings the libraries of CUDA; PIP_EXTRA_INDEX_URL names an index with CPU builds, and "
        "--no-torch (TORCH=no ./run.sh) goes without",
    )


def brings_cuda(installer: Installer) -> bool:
    """Whether the build of torch that the installer is going to choose asks for libraries of CUDA.

    uv lists everything that it would install. pip would fetch all of that first, so it is asked for torch's
    own metadata alone.
    """
    options = ["--no-deps", "--quiet", "--report", "-"] if installer.name == "pip" else []
    command = [*installer.command, "--dry-run", *options, *TORCH_WANTED]
    answer = subprocess.run(command, capture_output=True, text=True, env=installer.environment)
    if answer.returncode:
        raise SetupError(reason_of(answer.stdout + answer.stderr, f"{installer.name} failed"))
    needs = answer.stdout + answer.stderr
    if installer.name == "pip":
        chosen = json.loads(answer.stdout)["install"]
        needs = " ".join(need for package in chosen for need in package["metadata"].get("requires_dist", []))
    return "nvidia-" in needs


def has_torch(venv: Path) -> bool:
    """Whether some torch is in the environment, so that no other is going to be fetched beside it."""
    return any(venv.glob("lib/python*/site-packages/torch/__init__.py"))


def install(venv: Path, parts: list[str], installer: str | None = None) -> None:
    """Install the pinned packages and this project in place.

    Args:
        installer: ``uv`` or ``pip``; by default pip only where uv fails or would choose other builds.
    """
    if installer is None and (places := _further_places(venv)):
        print(f"  pip is configured with {places}, of whose builds uv may choose others", flush=True)
        installer = "pip"
    if installer != "pip":
        try:
            _install_all(find_uv(venv), venv, parts)
            return
        except SetupError as error:
            if installer == "uv" or isinstance(error, NoRoomError):
                raise
            print(f"  uv can't do it, so pip does: {str(error).splitlines()[0]}", flush=True)
    _install_all(find_pip(venv), venv, parts)


def find_pip(venv: Path) -> Installer:
    python = str(venv / "bin" / "python")
    return Installer("pip", [python, "-m", "pip", "install", "--no-compile"], dict(os.environ))


def find_uv(venv: Path) -> Installer:
    """uv from PATH or from the environment, where pip puts it if need be."""
    path = shutil.which("uv") or shutil.which("uv", path=str(venv / "bin"))
    if path is None:
        _install(find_pip(venv), ["--no-deps", UV])
        path = str(venv / "bin" / "uv")
    command = [path, "pip", "install", "--python", str(venv / "bin" / "python"), "--compile-bytecode"]
    return Installer("uv", command, _uv_variables(venv) | os.environ)


def _install_all(installer: Installer, venv: Path, parts: list[str]) -> None:
    print(f"  {installer.name} installs", flush=True)
    locked = [part for part in parts if part not in (BINDINGS, CLIENTS)]
    files = [argument for part in locked for argument in ("-r", str(REQUIREMENTS / f"{part}.txt"))]
    if TORCH in parts and not has_torch(venv):
        check_torch_room(installer, venv)
    # Only torch's own requirements depend on its build (CUDA libraries); all others are listed, and what
    # nvidia-pytriton asks for beside its server is not wanted.
    _install(installer, ["--no-deps", "--require-hashes", *files])
    if TORCH in parts:
        _install(installer, TORCH_WANTED)
    _install(installer, ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)])
    if CLIENTS in parts:
        _install(installer, ["--no-deps", "-r", str(REQUIREMENTS / f"{CLIENTS}.txt")])
        _install_for_node()
    if BINDINGS in parts:
        _install_side_by_side(installer, venv / BINDINGS, REQUIREMENTS / f"{BINDINGS}.txt")
    if installer.name == "pip" and TEST not in parts:
        _compile(venv)


def _compile(venv: Path) -> None:
    """Compile what pip has installed, on all cores at once: pip would do it on one.

    Tests import few of their packages' 15,000 modules. Python compiles those when they are first imported.
    """
    print("  modules are compiled", flush=True)
    # A package may bring files for other versions of Python, of which nothing is said.
    subprocess.run([str(venv / "bin" / "python"), "-m", "compileall", "-qq", "-j", "0", str(venv / "lib")])


def _install_for_node() -> None:
    """openai's package for Node, where npm is."""
    npm = shutil.which("npm")
    if npm is None:
        print("  npm is missing, so the client for Node is left out", flush=True)
        return
    run([npm, "ci", "--ignore-scripts", "--prefix", str(REQUIREMENTS / "node")], "npm failed")


def _further_places(venv: Path) -> str:
    """Settings by which pip looks for packages in several places.

    pip weighs all builds of a version by their platform, wherever they lie; uv takes the first place that has
    the version, also when that has only a build without the platform's libraries.
    """
    keys = {key.rpartition(".")[2] for key in _pip_settings(venv)}
    return " and ".join(sorted(keys & {"extra-index-url", "find-links"}))


def _pip_settings(venv: Path) -> dict[str, str]:
    listed = subprocess.run(
        [str(venv / "bin" / "python"), "-m", "pip", "config", "list"], capture_output=True, text=True
    )
    return dict(line.split("=", 1) for line in listed.stdout.splitlines() if "=" in line)


def _uv_variables(venv: Path) -> dict[str, str]:
    """Pip's configuration as variables of uv, and pip's way to choose: the newest of all indexes."""
    settings = _pip_settings(venv)
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for key in sorted(settings, key=lambda key: key.startswith(":env:")):  # variables win over files
        name = UV_VARIABLES.get(key.rpartition(".")[2])
        if name:
            words = str(ast.literal_eval(settings[key])).split()
            variables[name] = ("," if name == "UV_FIND_LINKS" else " ").join(words)
    return variables


def _install_side_by_side(installer: Installer, folder: Path, requirements: Path) -> None:
    """Several versions of a package, each into a folder of its version."""
    for line in requirements.read_text(encoding="utf-8").splitlines():
        if pin := line.partition("#")[0].strip():
            target = folder / pin.partition("==")[2]
            _install(installer, ["--no-deps", "--upgrade", "--target", str(target), pin])


def _install(installer: Installer, arguments: list[str]) -> None:
    """Run the installer and show what it works on."""
    with subprocess.Popen(
        [*installer.command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=installer.environment | {"PIP_PROGRESS_BAR": "off", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    ) as process:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if match := PROGRESS.match(line):
                print(f"  {match[1] or match[2]}", flush=True)
    if process.returncode:
        raise SetupError(reason_of("".join(lines), f"{installer.name} failed"))


def run(command: list[str], failure: str, show: bool = False) -> None:
    answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if answer.returncode:
        raise SetupError(reason_of(answer.stdout, failure))
    if show:
        print(f"  {answer.stdout.strip()}")


def reason_of(output: str, failure: str) -> str:
    reasons = [meaning for pattern, meaning in REASONS.items() if re.search(pattern, output)]
    last_lines = "\n    ".join(output.strip().splitlines()[-8:])
    return f"{failure}{': ' if reasons else ''}{'; '.join(reasons)}\n    {last_lines}"


def digest_of(part: str) -> str:
    names = [f"{part}.txt", "torch.in"] if part == TORCH else [f"{part}.txt"]
    paths = [*(REQUIREMENTS / name for name in names), ROOT / "pyproject.toml"]
    content = b"".join(path.read_bytes() for path in paths)
    return hashlib.sha256(content + str(ROOT).encode()).hexdigest()


def _stamp_path(venv: Path) -> Path:
    return venv / "requirements.json"


def _stamp(venv: Path) -> dict[str, str]:
    path = _stamp_path(venv)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


if __name__ == "__main__":
    sys.exit(main())
