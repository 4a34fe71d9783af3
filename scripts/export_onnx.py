#!/usr/bin/env python3
"""Write a checkpoint's networks as ONNX graphs: what the backends onnx and tensorrt run.

    export_onnx.py checkpoints/CosyVoice2-0.5B engines/networks --dtype float16

Graphs that were written from the same files are left alone.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from cosyvoice_runtime.compiled.export.graph import ONNX_TYPES
from cosyvoice_runtime.compiled.export.graph_files import EXTRACTORS, NETWORKS, export_graph, graph_of
from cosyvoice_runtime.errors import CosyVoiceError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path, help="directory of the weights")
    parser.add_argument("out", type=Path, help="directory of graphs and engines: the setting backend_dir")
    parser.add_argument(
        "--dtype",
        choices=ONNX_TYPES,
        default="float16",
        help="of weights and matrix products, as token2wav's setting dtype (default: float16)",
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        for name in (*NETWORKS, *EXTRACTORS):
            tell(
                graph_of(options.out, name),
                export_graph(options.checkpoint, options.out, name, options.dtype),
            )
    except CosyVoiceError as error:
        print(f"export_onnx: {error}", file=sys.stderr)
        return 1
    return 0


def tell(path: Path, reasons: list[str]) -> None:
    for reason in reasons:
        print(f"  written because: {reason}")
    print(f"{path}: {'complete' if reasons else 'unchanged, nothing to do'}")


if __name__ == "__main__":
    sys.exit(main())
