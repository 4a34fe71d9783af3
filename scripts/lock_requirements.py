#!/usr/bin/env python3
"""Write the lock files of requirements/ anew from the .in files beside them, with hashes. Needs uv.

python3 scripts/lock_requirements.py             after a change of an .in file; other pins stay
python3 scripts/lock_requirements.py --upgrade   newer versions of what the direct dependencies need
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLATFORM = ["--python-platform", "x86_64-manylinux_2_35", "--python-version", "3.11"]
"""Python of the server's package; Python 3.12 needs the same versions."""
CPU = ["--constraints", "requirements/cpu.txt"]
TORCH = ["--constraints", "requirements/torch.txt"]
PARTS = {
    "cpu": [],
    "torch": [*CPU, "--no-emit-package", "torch"],
    "gpu": [*CPU, *TORCH],
    "front": CPU,
    "test": [*CPU, *TORCH, "--constraints", "requirements/front.txt"],
    "dynamo": CPU,
    "fleet": [*CPU, *(f"--constraints=requirements/{part}.txt" for part in ("torch", "front", "test"))],
    "sbom": CPU,
}
"""Files, those that others follow first, and what uv is told for them alone. Only gpu.txt has torch itself,
as PyPI has it, with the libraries of CUDA: builds for one kind of machine have hashes of their own."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--upgrade", action="store_true")
    options = parser.parse_args(arguments)
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]))
    if uv is None:
        print("lock_requirements: uv is not on PATH (pip install uv)", file=sys.stderr)
        return 1
    upgrade = ["--upgrade"] if options.upgrade else []
    return max(lock(uv, part, [*how, *upgrade]) for part, how in PARTS.items())


def lock(uv: str, part: str, how: list[str]) -> int:
    """Exit status of uv; it keeps the versions that the file holds as far as they still fit."""
    header = ["--custom-compile-command", "scripts/lock_requirements.py"]
    # uv.toml says that torch needs no CUDA.
    config = ["--no-config"] if part == "gpu" else ["--config-file", "requirements/uv.toml"]
    source = "torch" if part == "gpu" else part
    files = ["--output-file", f"requirements/{part}.txt", f"requirements/{source}.in"]
    options = [*config, "--quiet", "--generate-hashes", *header, *PLATFORM, *how]
    return subprocess.run([uv, "pip", "compile", *options, *files], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
