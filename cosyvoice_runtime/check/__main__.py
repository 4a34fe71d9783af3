"""Speak a known sentence with a checkpoint, in float32 and as it is served, and compare the numbers.

    python -m cosyvoice_runtime.check checkpoint_dir=DIRECTORY [KEY=VALUE ...]

Prints a table, then what is wrong; exits with 1 if anything is. Settings are those of stages 1 to 3.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from cosyvoice_runtime.check.checking import SENTENCE, Check
from cosyvoice_runtime.check.comparison import SOURCE, table
from cosyvoice_runtime.check.precisions import not_run
from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.settings import Machine, Settings
from cosyvoice_runtime.settings.served_family import require_served


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        settings = Settings.read(options.settings, os.environ).resolved(Machine.here())
        require_served(settings)
        with TemporaryDirectory(prefix="cosyvoice-check-") as exported:
            check = Check(settings, options.reference, options.reference_text, Path(exported))
            rows = list(check.rows())
    except CosyVoiceError as error:
        print(f"check: {error}", file=sys.stderr)
        return 1
    print(f"{settings.tensorrt_llm.checkpoint_dir}: {SENTENCE}")
    print(table(rows))
    print(f"Limits: {SOURCE}.")
    for line in not_run(settings):
        print(f"Not compared: {line}.")
    wrong = [f"check: {row.stage}, {row.precision}: {row.wrong}" for row in rows if row.wrong]
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    return 1 if wrong else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m cosyvoice_runtime.check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--reference", type=Path, required=True, help="recording to speak like, 0.5 to 30 s")
    parser.add_argument("--reference-text", default="", help="what it says")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    return parser.parse_intermixed_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
