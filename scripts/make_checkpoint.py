#!/usr/bin/env python3
"""Write a complete checkpoint directory with random weights."""

from __future__ import annotations

import argparse
import logging
import sys

import torch

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.families import DEFAULT, FAMILIES
from making import make_checkpoint

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def main() -> int:
    options = parse_options()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        path = make_checkpoint(
            options.out,
            options.size,
            options.seed,
            dtype=DTYPES[options.dtype],
            force=options.force,
            family=options.family,
        )
    except CosyVoiceError as error:
        logging.error("%s", error)
        return 1
    logging.info("%s: complete", path)
    return 0


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", help="directory to write, laid out like a published one")
    parser.add_argument(
        "--family",
        choices=[family.name for family in FAMILIES],
        default=DEFAULT.name,
        help="default: %(default)s",
    )
    parser.add_argument(
        "--size",
        choices=("tiny", "full"),
        default="tiny",
        help="tiny: runs in seconds on a CPU; full: the published sizes, 2.6 GB in fp32 (default: tiny)",
    )
    parser.add_argument("--seed", type=int, default=0, help="same seed, same bytes (default: 0)")
    parser.add_argument("--dtype", choices=DTYPES, default="fp32", help="of the weights (default: fp32)")
    parser.add_argument("--force", action="store_true", help="replace a directory that is not empty")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
