"""TensorRT's own Python bindings over an empty library, each release in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from empty_library import write_library

ROOT = Path(__file__).parents[2]
FOLDER = Path(sys.prefix) / "bindings"
RELEASES = tuple(
    line.split("#")[0].split("==")[1].strip()
    for line in (ROOT / "requirements" / "bindings.txt").read_text("utf-8").splitlines()
    if "==" in line.split("#")[0]
)
LIBRARIES = ("nvinfer", "nvinfer_plugin", "nvonnxparser")
FUNCTIONS = (
    "createInferBuilder_INTERNAL",
    "createInferRefitter_INTERNAL",
    "createInferRuntime_INTERNAL",
    "createNvOnnxParser_INTERNAL",
    "createNvOnnxParserRefitter_INTERNAL",
    "getBuilderPluginRegistry",
    "getNvOnnxParserVersion",
    "getPluginRegistry",
    "initLibNvInferPlugins",
)
"""What the bindings link to."""
START = "import json, sys; import tensorrt_bindings as trt; sys.modules['tensorrt'] = trt\n"


def ask(release: str, code: str, folder: Path) -> Any:
    """What a program prints as JSON; ``trt`` is the release, and what ``import tensorrt`` finds.

    Args:
        folder: for the empty libraries.
    """
    assert (FOLDER / release).is_dir(), (
        f"{FOLDER / release} is missing: scripts/environment.py --test makes it"
    )
    for name in LIBRARIES:
        write_library(folder / f"lib{name}.so.{release.split('.')[0]}", FUNCTIONS)
    paths = {"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": f"{FOLDER / release}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", START + code]
    answer = subprocess.run(command, env={**os.environ, **paths}, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)
