"""The interpreter that an environment is made with: the first on PATH that can run the server's models."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator

VERSIONS = ("3.11", "3.12")
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


class SetupError(Exception):
    """Why there is no environment, in words for a person."""


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
        missing = lacking(facts)
        if not missing:
            return str(facts["executable"])
        lacks.append(f"{candidate} lacks {' and '.join(missing)}")
    versions = " or ".join(VERSIONS)
    hint = "on Debian: apt install python3.11 python3.11-venv libpython3.11"
    raise SetupError("; ".join([*lacks, f"Python {versions} with venv and libpython is needed ({hint})"]))


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


def lacking(facts: dict[str, object]) -> list[str]:
    version = facts["version"]
    missing = []
    if version not in VERSIONS:
        missing.append(f"the right version (it is {version})")
    if not facts["venv"]:
        missing.append(f"venv (on Debian: apt install python{version}-venv)")
    if not facts["library"]:
        missing.append(f"libpython (on Debian: apt install libpython{version})")
    return missing
