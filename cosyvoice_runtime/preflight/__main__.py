"""Command line: ``python -m cosyvoice_runtime.preflight --engine ENGINE``, in NVIDIA's container for it.

Exit status: 0 when nothing failed, 1 when something did, 2 when something could not be checked. A warning is
about what should run, such as a driver that is older than the container's own and compatible with it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cosyvoice_runtime.preflight import tensorrt_llm, vllm
from cosyvoice_runtime.preflight.outcome import exit_code, table


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m cosyvoice_runtime.preflight",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--engine", choices=("tensorrt_llm", "vllm"), default="tensorrt_llm", help="default: %(default)s"
    )
    parser.add_argument(
        "--checkpoint", type=Path, help="engine tensorrt_llm: what stage 1 converted, engines/..._checkpoint"
    )
    parser.add_argument("--strict", action="store_true", help="a warning is a failure")
    options = parser.parse_args(arguments)
    outcomes = list(vllm.check() if options.engine == "vllm" else tensorrt_llm.check(options.checkpoint))
    sys.stdout.write(table(outcomes) + "\n")
    return exit_code(outcomes, options.strict)


if __name__ == "__main__":
    sys.exit(main())
