#!/usr/bin/env python3
"""Write what an environment holds: a bill of materials (CycloneDX) and the licences of its packages.

    .venv/bin/python scripts/sbom.py sbom                   of the interpreter that runs this
    .venv/bin/python scripts/sbom.py sbom --python PYTHON   of another environment

Two programs do it, from an environment of their own that is gone afterwards. They write SBOM.cdx.json and
LICENCES.md into the folder.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

REQUIREMENTS = Path(__file__).resolve().parent.parent / "requirements" / "sbom.txt"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="to make and to write into")
    parser.add_argument("--python", default=sys.executable, help="default: the one that runs this")
    options = parser.parse_args(arguments)
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory() as tools:
            for command in commands(Path(tools), options.python, options.folder):
                subprocess.run(command, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"sbom: {error}", file=sys.stderr)
        return 1
    return 0


def commands(tools: Path, python: str, folder: Path) -> list[list[str | Path]]:
    """Those that make the tools' environment, and those that describe the environment of ``python``."""
    own = tools / "bin" / "python"
    with_pip = sys.executable if find_spec("pip") else Path(sys.base_exec_prefix, "bin", "python3")
    pip: list[str | Path] = [
        with_pip,
        "-m",
        "pip",
        "--python",
        own,
        "install",
        "--quiet",
        "--no-cache-dir",
    ]
    return [
        [sys.executable, "-m", "venv", "--without-pip", tools],
        [*pip, "--no-deps", "--require-hashes", "--requirement", REQUIREMENTS],
        [own, "-m", "cyclonedx_py", "environment", "-o", folder / "SBOM.cdx.json", python],
        [
            own, "-m", "piplicenses", f"--python={python}", "--format=markdown", "--with-urls",
            f"--output-file={folder / 'LICENCES.md'}",
        ],
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
