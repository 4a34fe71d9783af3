#!/usr/bin/env python3
"""Run the steps of an image of NVIDIA's in virtual environments, without the image.

    replay_image.py --python python3.12 --folder /tmp/image
    replay_image.py --python python3.12 --folder /tmp/image --flavour trtllm

The Dockerfile's own commands run, from the wheel of this project to the imports at the end; both flavours
fetch torch with all that it asks for (several GB). With trtllm the environment gets what the container is
known to bring first (requirements/container.txt). It says what would be replaced and whether everything can
be imported; it can't say what the container has beside that.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONTAINER = ROOT / "requirements" / "container.txt"
SOURCE = ("requirements", "pyproject.toml", "README.md", "LICENSE", "cosyvoice_runtime", "client", "scripts")
"""Files that the image copies from here."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default="python3.12", help="default: %(default)s, the container's")
    parser.add_argument("--folder", type=Path, required=True, help="for the environments of both stages")
    parser.add_argument("--flavour", choices=("gpu", "trtllm"), default="gpu", help="default: %(default)s")
    options = parser.parse_args(arguments)
    folder = options.folder.absolute()
    copy_source(folder / "source")
    for stage in ("wheel", options.flavour):
        run([options.python, "-m", "venv", str(folder / stage)], folder)
        folders = [folder / "venv" / "bin", folder / stage / "bin", os.environ["PATH"]]
        path = os.pathsep.join(map(str, folders if stage == "gpu" else folders[1:]))
        for command in preparations() if stage == "trtllm" else ():
            run(command, folder, path)
        for step in steps((ROOT / "Dockerfile").read_text("utf-8"), stage, folder):
            run(["bash", "-euc", step], folder / "source", path)
    print("every step of the image ran")
    return 0


def preparations() -> Iterator[list[str]]:
    """The container as it is before the image's steps."""
    pins = [line.partition("#")[0].strip() for line in CONTAINER.read_text("utf-8").splitlines()]
    torch, *others = [pin for pin in pins if pin]
    install = ["python3", "-m", "pip", "install", "--quiet"]
    yield [*install, torch]
    yield [*install, "--no-deps", *others]


def steps(dockerfile: str, wanted: str, folder: Path) -> Iterator[str]:
    """The commands of a stage, with folders here in place of the image's own."""
    places = {
        "/packages/wheels": f"{folder / 'wheels'}",
        "/packages/server.txt": f"{folder / 'server.txt'}",
        "/packages/container_packages.py": "scripts/container_packages.py",
        "/packages/": "requirements/",
        "--wheel-dir /wheels": f"--wheel-dir {folder / 'wheels'}",
        "/usr/bin/python3": f"{folder / wanted / 'bin' / 'python3'}",
        "/opt/venv": f"{folder / 'venv'}",
    }
    stage = ""
    for line in re.sub(r"\\\n\s*", " ", dockerfile).splitlines():
        word, _, command = line.partition(" ")
        if word == "FROM":
            stage = command.rpartition(" AS ")[2]
        if word == "RUN" and stage == wanted:
            for there, here in places.items():
                command = command.replace(there, here)
            yield command


def copy_source(target: Path) -> None:
    """Into an empty folder, as building leaves files beside the source."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in SOURCE:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, target / name)


def run(command: list[str], folder: Path, path: str = os.environ["PATH"]) -> None:
    """Run a command, and end the script where it fails."""
    print("+", " ".join(command), flush=True)
    status = subprocess.run(command, cwd=folder, env={**os.environ, "PATH": path}).returncode
    if status:
        raise SystemExit(f"replay_image: status {status}")


if __name__ == "__main__":
    sys.exit(main())
