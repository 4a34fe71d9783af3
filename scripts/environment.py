#!/usr/bin/env python3
"""Make a virtual environment that runs the whole product on a machine without a GPU.

    python3 scripts/environment.py            what the server and the clients need
    python3 scripts/environment.py --test     and what the tests need

Needs Linux on x86_64 and Python 3.11 or 3.12 with venv and libpython. Nothing is done when the environment
already holds what requirements/ asks for.

pip's own variables choose where packages come from. The build of torch on PyPI brings CUDA with it (several
GB, and it runs without a GPU too); with PIP_EXTRA_INDEX_URL naming an index that has CPU builds, pip takes
the CPU build.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
VERSIONS = ("3.11", "3.12")
GLIBC = (2, 35)
FREE_GIB = 3.0
PYTHON_FACTS = """
import importlib.util, json, pathlib, sys, sysconfig
name = "libpython%d.%d.so.1.0" % sys.version_info[:2]
folders = [sysconfig.get_config_var("LIBDIR") or "", sys.base_prefix + "/lib"]
print(json.dumps({
    "executable": sys.executable,
    "version": "%d.%d" % sys.version_info[:2],
    "venv": all(importlib.util.find_spec(module) for module in ("venv", "ensurepip")),
    "library": any((pathlib.Path(folder) / name).exists() for folder in folders),
}))
"""
SMOKE_TEST = """
import numpy, onnxruntime, tokenizers, torch, tritonclient.grpc, cosyvoice_runtime
assert numpy.__version__.startswith("1."), "numpy " + numpy.__version__
print("torch", torch.__version__, "numpy", numpy.__version__, "onnxruntime", onnxruntime.__version__)
"""
REASONS = {
    r"No space left on device": "the disk is full",
    r"Temporary failure in name resolution|Max retries exceeded|NewConnectionError|Network is unreachable": (
        "the package index can't be reached; PIP_INDEX_URL names another one"
    ),
    r"No matching distribution found for (\S+)": "the package index does not have a package listed here",
}
"""What pip says, and what it means."""


class SetupError(Exception):
    """Why there is no environment, in words for a person."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="default: .venv of the checkout")
    parser.add_argument("--test", action="store_true", help="also what the tests need")
    parser.add_argument("--python", help="base interpreter; default: the first fitting one on PATH")
    options = parser.parse_args()
    try:
        make(options.venv.absolute(), ["cpu", "test"] if options.test else ["cpu"], options.python)
    except SetupError as error:
        print(f"environment: {error}", file=sys.stderr)
        return 1
    return 0


def make(venv: Path, parts: list[str], python: str | None) -> None:
    """Bring an environment up to date with the named files of requirements/."""
    wanted = {part: _digest(part) for part in parts}
    if _stamp(venv).items() >= wanted.items():
        print(f"{venv}: up to date, nothing to do")
        return
    started = time.monotonic()
    check_platform(venv)
    if not (venv / "bin" / "pip").exists():
        base = find_python(python)
        print(f"{venv}: made with {base}")
        _run([base, "-m", "venv", "--clear", str(venv)], "the virtual environment can't be made")
    install(venv, parts)
    _run([str(venv / "bin" / "python"), "-c", SMOKE_TEST], "the environment does not work", show=True)
    _stamp_path(venv).write_text(json.dumps(_stamp(venv) | wanted), encoding="utf-8")
    print(f"{venv}: ready after {time.monotonic() - started:.0f} s")


def check_platform(venv: Path) -> None:
    """Raises: SetupError: the machine can't run the server's package, or its disk is too small."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise SetupError(f"Linux on x86_64 is needed, this is {platform.system()} on {platform.machine()}")
    library, version = platform.libc_ver()
    if library != "glibc" or tuple(map(int, version.split("."))) < GLIBC:
        raise SetupError(f"glibc {GLIBC[0]}.{GLIBC[1]} or newer is needed, this is {library} {version}")
    free = shutil.disk_usage(next(folder for folder in venv.parents if folder.exists())).free / 2**30
    if free < FREE_GIB:
        raise SetupError(f"{venv.parent} has {free:.1f} GiB free, {FREE_GIB:.0f} are needed")


def find_python(wanted: str | None) -> str:
    """Path of a base interpreter that can make the environment and run the server's models.

    Raises:
        SetupError: there is none; says for each one found what it lacks.
    """
    lacks = []
    for candidate in [wanted] if wanted else _interpreters():
        facts = _inspect(candidate)
        if facts is None:
            continue
        missing = _missing(facts)
        if not missing:
            return str(facts["executable"])
        lacks.append(f"{candidate} lacks {' and '.join(missing)}")
    versions = " or ".join(VERSIONS)
    hint = "on Debian: apt install python3.11 python3.11-venv libpython3.11"
    raise SetupError("; ".join([*lacks, f"Python {versions} with venv and libpython is needed ({hint})"]))


def install(venv: Path, parts: list[str]) -> None:
    """Install the pinned packages and this project in place."""
    files = [REQUIREMENTS / f"{part}.txt" for part in parts]
    arguments = [argument for file in files for argument in ("-r", str(file))]
    # Only torch's own requirements depend on its build (CUDA libraries); all others are listed.
    _pip(venv, ["--constraint", str(REQUIREMENTS / "cpu.txt"), "torch"], total=None)
    _pip(venv, ["--no-deps", *arguments], total=sum(_count(file) for file in files))
    _pip(venv, ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)], total=None)


def _interpreters() -> Iterator[str]:
    for version in VERSIONS:
        for folder in os.get_exec_path():
            path = shutil.which(f"python{version}", path=folder)
            if path:
                yield path


def _inspect(python: str) -> dict[str, object] | None:
    """Facts about an interpreter; None for a version manager's stand-in without an interpreter behind it."""
    try:
        answer = subprocess.run([python, "-I", "-c", PYTHON_FACTS], capture_output=True, text=True)
    except OSError as error:
        raise SetupError(f"{python} can't be run: {error.strerror}") from error
    return json.loads(answer.stdout) if answer.returncode == 0 else None


def _missing(facts: dict[str, object]) -> list[str]:
    version = facts["version"]
    missing = []
    if version not in VERSIONS:
        missing.append(f"the right version (it is {version})")
    if not facts["venv"]:
        missing.append(f"venv (on Debian: apt install python{version}-venv)")
    if not facts["library"]:
        missing.append(f"libpython (on Debian: apt install libpython{version})")
    return missing


def _pip(venv: Path, arguments: list[str], total: int | None) -> None:
    """Run pip install and show what it works on."""
    command = [str(venv / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
    process = subprocess.Popen(
        [*command, "--progress-bar=off", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines: list[str] = []
    seen = 0
    for line in process.stdout:
        lines.append(line)
        if match := re.match(
            r"(?:Collecting|Processing|Requirement already satisfied:) (?:\S*/)?(\S+)", line
        ):
            seen += 1
            print(f"  [{seen}/{total}] {match[1]}" if total else f"  {match[1]}", flush=True)
        elif line.startswith("Installing"):
            print("  unpacking", flush=True)
    if process.wait():
        raise SetupError(_reason("".join(lines), "pip failed"))


def _run(command: list[str], failure: str, show: bool = False) -> None:
    answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if answer.returncode:
        raise SetupError(_reason(answer.stdout, failure))
    if show:
        print(f"  {answer.stdout.strip()}")


def _reason(output: str, failure: str) -> str:
    reasons = [meaning for pattern, meaning in REASONS.items() if re.search(pattern, output)]
    last_lines = "\n    ".join(output.strip().splitlines()[-8:])
    return f"{failure}{': ' if reasons else ''}{'; '.join(reasons)}\n    {last_lines}"


def _count(requirements: Path) -> int:
    return sum("==" in line for line in requirements.read_text(encoding="utf-8").splitlines())


def _digest(part: str) -> str:
    content = (REQUIREMENTS / f"{part}.txt").read_bytes() + (ROOT / "pyproject.toml").read_bytes()
    return hashlib.sha256(content + str(ROOT).encode()).hexdigest()


def _stamp_path(venv: Path) -> Path:
    return venv / "requirements.json"


def _stamp(venv: Path) -> dict[str, str]:
    path = _stamp_path(venv)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


if __name__ == "__main__":
    sys.exit(main())
