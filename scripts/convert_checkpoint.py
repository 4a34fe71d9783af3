#!/usr/bin/env python3
"""Convert the speech LM to TensorRT-LLM's checkpoint format.

    convert_checkpoint.py checkpoints/CosyVoice2-0.5B engines/tensorrt_llm/checkpoint

Needs neither TensorRT-LLM nor a GPU. The source is a checkpoint directory or its Hugging Face form. What was
converted from the same files with the same options is left alone.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.serving.lm.engines.tensorrt_llm.conversion import LAYOUTS, ConversionOptions, convert
from cosyvoice_runtime.serving.lm.engines.tensorrt_llm.conversion.config_file import QUANT_ALGOS
from cosyvoice_runtime.serving.lm.engines.tensorrt_llm.conversion.convert import DTYPES


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    try:
        wanted = ConversionOptions(options.layout, options.dtype, options.tp_size, options.weight_only)
        reasons = convert(options.source, options.out, wanted, show)
    except CosyVoiceError as error:
        print(f"convert_checkpoint: {error}", file=sys.stderr)
        return 1
    for reason in reasons:
        print(f"  written because: {reason}")
    print(f"{options.out}: {'complete' if reasons else 'unchanged, nothing to do'}")
    return 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, help="checkpoint directory, or its Hugging Face form")
    parser.add_argument("out", type=Path, help="directory to write")
    parser.add_argument(
        "--layout",
        choices=LAYOUTS,
        default="merged",
        help="merged: for NVIDIA's stock model; speech: emits speech ids only (default: %(default)s)",
    )
    parser.add_argument(
        "--dtype", choices=DTYPES, default="bfloat16", help="weights and activations (default: %(default)s)"
    )
    parser.add_argument("--tp-size", type=int, default=1, help="GPUs that share the network (default: 1)")
    parser.add_argument(
        "--weight-only",
        choices=tuple(QUANT_ALGOS),
        default="none",
        help="quantise the layers' matrices when the engine is built (default: %(default)s)",
    )
    return parser.parse_args(arguments)


def show(name: str, number: int, total: int) -> None:
    """One line that tells how far the writing is; a line each where it is not a terminal's."""
    end = "\n" if number == total or not sys.stdout.isatty() else "\r"
    print(f"  [{number}/{total}] {name:60}", end=end, flush=True)


if __name__ == "__main__":
    sys.exit(main())
