#!/usr/bin/env python3
"""Install what a container lacks of files of pinned requirements, and nothing else.

    container_packages.py --lock requirements/cpu.txt requirements/nvidia.txt requirements/nvidia-trtllm.txt

A line is ``name==1.2`` or ``name>=1.1,==1.2``. A package that the container has stays at its version, unless
that is outside the bounds before ``==``: NVIDIA's own libraries were tested with the version they bring, and
some refuse to be imported beside another. Otherwise the version after ``==`` is installed, and nothing that
it asks for: the files are complete. The lock file has the hashes of its files, to which pip holds them.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NamedTuple

from pip._vendor.packaging.specifiers import SpecifierSet  # the container may lack a packaging of its own

LINE = re.compile(r"(?P<name>[\w.-]+)(?P<bounds>[<>~!][^=]?=?[^=]*,)?==(?P<version>[\w.]+)")

ENTRY = re.compile(r"^(\S+==\S+)((?: \\\n +--hash=\S+)+\n)", re.MULTILINE)
"""A pin of a lock file, and its hashes on lines of their own."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("requirements", type=Path, nargs="+")
    parser.add_argument(
        "--lock", type=Path, required=True, help="file that pins the same versions, with hashes"
    )
    options = parser.parse_args(arguments)
    wanted = [pin for path in options.requirements for pin in pins(path)]
    lacking = [pin for pin in wanted if not stays(pin, installed(pin.name))]
    return install([f"{pin.name}=={pin.version}" for pin in lacking], options.lock) if lacking else 0


class Pin(NamedTuple):
    """
    Attributes:
        accepted: versions that may stay.
        version: what is installed otherwise.
    """

    name: str
    accepted: SpecifierSet
    version: str


def stays(pin: Pin, present: str | None) -> bool:
    """Whether the container's version will do; says so."""
    if present is None:
        return False
    accepted = pin.accepted.contains(present, prereleases=True)
    verdict = "stays" if accepted else f"is replaced, needed is {pin.accepted}"
    print(
        f"  {pin.name} {present} {verdict}" + ("" if present == pin.version else f"; pinned is {pin.version}")
    )
    return accepted


def pins(requirements: Path) -> list[Pin]:
    """Of each line; a line that pins nothing is an error."""
    lines = [line.partition("#")[0].strip() for line in requirements.read_text(encoding="utf-8").splitlines()]
    return [_pin(line) for line in lines if line]


def installed(name: str) -> str | None:
    """Version of a package, whoever installed it."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def install(packages: list[str], lock: Path) -> int:
    print(f"  installing {' '.join(packages)}")
    command = [sys.executable, "-m", "pip", "install", "--no-cache-dir", "--no-deps", "--require-hashes"]
    with NamedTemporaryFile("w", suffix=".txt") as file:
        file.writelines(locked(packages, lock))
        file.flush()
        # NVIDIA's images may constrain pip to what they bring (PIP_CONSTRAINT); an empty name is none.
        environment = {**os.environ, "PIP_CONSTRAINT": ""}
        return subprocess.run([*command, "--requirement", file.name], env=environment).returncode


def locked(packages: list[str], lock: Path) -> list[str]:
    """Their entries in a lock file, with hashes; a package that it does not pin so is an error."""
    entries = {_key(pin): pin + hashes for pin, hashes in ENTRY.findall(lock.read_text(encoding="utf-8"))}
    if missing := [package for package in packages if _key(package) not in entries]:
        raise SystemExit(f"container_packages: {lock} does not lock {', '.join(missing)}")
    return [entries[_key(package)] for package in packages]


def _key(pin: str) -> str:
    name, _, version = pin.partition("==")
    return f"{re.sub(r'[-_.]+', '-', name).lower()}=={version}"


def _pin(line: str) -> Pin:
    match = LINE.fullmatch(line)
    if not match:
        raise SystemExit(f"container_packages: {line} is not pinned with ==")
    return Pin(match["name"], SpecifierSet((match["bounds"] or "").rstrip(",")), match["version"])


if __name__ == "__main__":
    sys.exit(main())
