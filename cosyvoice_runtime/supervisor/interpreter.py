"""Facts about the Python that runs the models."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cosyvoice_runtime.supervisor.errors import PreflightError

QUESTIONS = """
import importlib.metadata, importlib.util, json, sys, sysconfig
def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
spec = importlib.util.find_spec("pytriton")
print(json.dumps({
    "version": "%d.%d" % sys.version_info[:2],
    "library_folders": [sysconfig.get_config_var("LIBDIR"), sys.base_prefix + "/lib"],
    "numpy": version("numpy"),
    "pytriton": list(spec.submodule_search_locations)[0] if spec else None,
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """
    Attributes:
        executable: as given, not resolved: a virtual environment is found by this path.
        version: ``3.11``.
        library: its libpython, which the model processes link to; None when there is none.
        numpy: version of numpy, None when not installed.
        pytriton: the installed package that brings a tritonserver, None when not installed.
    """

    executable: Path
    version: str
    library: Path | None
    numpy: str | None
    pytriton: Path | None

    @property
    def library_name(self) -> str:
        return f"libpython{self.version}.so.1.0"

    @classmethod
    def inspect(cls, executable: Path) -> Interpreter:
        """Ask an interpreter.

        Raises:
            PreflightError: it does not run.
        """
        try:
            answer = subprocess.run(
                [executable, "-I", "-c", QUESTIONS], capture_output=True, text=True, check=True, timeout=60
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise PreflightError([f"{executable} is no working Python ({error})"]) from error
        facts = json.loads(answer.stdout)
        name = f"libpython{facts['version']}.so.1.0"
        libraries = [Path(folder, name) for folder in facts["library_folders"] if folder]
        return cls(
            executable=executable,
            version=facts["version"],
            library=next((path for path in libraries if path.exists()), None),
            numpy=facts["numpy"],
            pytriton=Path(facts["pytriton"]) if facts["pytriton"] else None,
        )
