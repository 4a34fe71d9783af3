"""Command line: ``python -m cosyvoice_runtime.checkpoint DIR`` lists what is wrong with a checkpoint."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from cosyvoice_runtime.checkpoint.checksums import write_checksums
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.verify import verify_checkpoint


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m cosyvoice_runtime.checkpoint",
        description="Read every file of a checkpoint directory and list what is wrong with it.",
    )
    parser.add_argument("directory", help="laid out like a published one")
    parser.add_argument(
        "--write-checksums", action="store_true", help="first write SHA256SUMS anew, of what is there"
    )
    options = parser.parse_args(arguments)
    directory = options.directory
    if options.write_checksums:
        layout = Layout(directory)
        try:
            write_checksums(layout.directory, layout.names())
        except OSError as error:
            sys.stderr.write(f"{error.filename}: {error.strerror}: the checksums can't be written\n")
            return 1
    problems = verify_checkpoint(directory)
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
    sys.stdout.write(f"{directory}: {count if problems else 'complete and sound'}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
