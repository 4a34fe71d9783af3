#!/usr/bin/env python3
"""Write a made CosyVoice3 checkpoint as vllm-omni loads it: its tensors in .pt files, and a config.json.

    python scripts/make_checkpoint.py made --size full --dtype bf16 --family cosyvoice3
    python benchmarks/peers/torch_checkpoint.py made served

The other files are linked. Tensors keep their names, values and dtype.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file

PARTS = ("llm", "flow", "hift")
CONFIG = {"model_type": "cosyvoice3", "architectures": ["CosyVoice3Model"]}
"""By these vllm-omni chooses the model; its other settings lie in its own code."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("made", type=Path, help="a checkpoint of scripts/make_checkpoint.py --size full")
    parser.add_argument("served", type=Path, help="the directory to write; must not exist")
    options = parser.parse_args(arguments)
    if not all((options.made / f"{part}.safetensors").is_file() for part in PARTS):
        parser.error(f"{options.made}: expected llm.safetensors, flow.safetensors and hift.safetensors")
    write(options.made.resolve(), options.served)
    return 0


def write(made: Path, served: Path) -> None:
    """Write the directory; a FileExistsError says that there is one."""
    served.mkdir(parents=True)
    for path in made.iterdir():
        if path.suffix != ".safetensors":
            (served / path.name).symlink_to(path)
    for part in PARTS:
        torch.save(load_file(made / f"{part}.safetensors"), served / f"{part}.pt")
    (served / "config.json").write_text(json.dumps(CONFIG), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
