"""Command line: ``python -m cosyvoice_runtime.preflight --checkpoint DIR``, in NVIDIA's container.

Exit status: 0 when everything passed, 1 when something failed, 2 when something could not be checked.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cosyvoice_runtime.preflight import python_api, tensorrt_api
from cosyvoice_runtime.preflight.driver import check_driver
from cosyvoice_runtime.preflight.outcome import exit_code, table
from cosyvoice_runtime.preflight.versions import check_versions
from cosyvoice_runtime.serving.lm.engines.tensorrt_llm.preflight.converted import check_converted
from cosyvoice_runtime.serving.lm.engines.tensorrt_llm.preflight.flags import check_flags


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m cosyvoice_runtime.preflight",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--checkpoint", type=Path, help="what convert_checkpoint.py wrote")
    options = parser.parse_args(arguments)
    outcomes = [
        *check_versions(),
        *check_driver(),
        *check_flags(),
        *python_api.check_python_api((*python_api.USED, *tensorrt_api.USED)),
        *check_converted(options.checkpoint),
    ]
    sys.stdout.write(table(outcomes) + "\n")
    return exit_code(outcomes)


if __name__ == "__main__":
    sys.exit(main())
