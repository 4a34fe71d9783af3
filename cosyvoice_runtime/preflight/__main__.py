"""Command line: ``python -m cosyvoice_runtime.preflight --engine ENGINE``, in NVIDIA's container for it.

Exit status: 0 when nothing failed, 1 when something did, 2 when something could not be checked. A warning is
about what should run, such as a driver that is older than the container's own and compatible with it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cosyvoice_runtime.preflight import python_api, tensorrt_api
from cosyvoice_runtime.preflight.driver import check_driver
from cosyvoice_runtime.preflight.outcome import Outcome, exit_code, table
from cosyvoice_runtime.preflight.versions import check_cuda, check_versions
from cosyvoice_runtime.serving.lm.engines.tensorrt_llm.pinned import PINNED as TENSORRT_LLM
from cosyvoice_runtime.serving.lm.engines.tensorrt_llm.preflight.converted import check_converted
from cosyvoice_runtime.serving.lm.engines.tensorrt_llm.preflight.flags import check_flags
from cosyvoice_runtime.serving.lm.engines.vllm import python_api as vllm_api
from cosyvoice_runtime.serving.lm.engines.vllm.installed import PINNED as VLLM


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
    outcomes = list(check_vllm() if options.engine == "vllm" else check_tensorrt_llm(options.checkpoint))
    sys.stdout.write(table(outcomes) + "\n")
    return exit_code(outcomes, options.strict)


def check_tensorrt_llm(checkpoint: Path | None) -> Iterator[Outcome]:
    """All that an engine's build and its server need; TensorRT's own networks included."""
    yield from check_versions(TENSORRT_LLM)
    yield from check_cuda(TENSORRT_LLM)
    yield from check_driver(TENSORRT_LLM)
    yield from check_flags()
    yield from python_api.check_python_api((*python_api.USED, *tensorrt_api.USED))
    yield from check_converted(checkpoint)


def check_vllm() -> Iterator[Outcome]:
    """All that a server on vLLM needs."""
    yield from check_versions(VLLM)
    yield from check_driver(VLLM)
    yield from python_api.check_python_api(vllm_api.USED)


if __name__ == "__main__":
    sys.exit(main())
