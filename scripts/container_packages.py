#!/usr/bin/env python3
"""Install what a container lacks of a file of pinned requirements, and nothing else.

    container_packages.py requirements/nvidia.txt

A package that the container has stays at its version: NVIDIA's own libraries were tested with that one, and
some refuse to be imported beside another. Nothing that a package asks for is installed: the file is complete.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("requirements", type=Path)
    options = parser.parse_args(arguments)
    missing = []
    for name, pinned in pins(options.requirements):
        if present := installed(name):
            print(f"  {name} {present} stays" + ("" if present == pinned else f", pinned here is {pinned}"))
        else:
            missing.append(f"{name}=={pinned}")
    return install(missing) if missing else 0


def pins(requirements: Path) -> list[tuple[str, str]]:
    """Name and version of each line; a line that pins nothing is an error."""
    lines = [line.partition("#")[0].strip() for line in requirements.read_text(encoding="utf-8").splitlines()]
    return [_pin(line) for line in lines if line]


def installed(name: str) -> str | None:
    """Version of a package, whoever installed it."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def install(packages: list[str]) -> int:
    print(f"  installing {' '.join(packages)}")
    command = [sys.executable, "-m", "pip", "install", "--no-cache-dir", "--no-deps", *packages]
    return subprocess.run(command).returncode


def _pin(line: str) -> tuple[str, str]:
    name, equals, pinned = line.partition("==")
    if not equals:
        raise SystemExit(f"container_packages: {line} is not pinned with ==")
    return name, pinned


if __name__ == "__main__":
    sys.exit(main())
