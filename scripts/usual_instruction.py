#!/usr/bin/env python3
"""Print the instruction that a checkpoint needs before words that are spoken as usual; nothing without need.

usual_instruction.py CHECKPOINT
"""

from __future__ import annotations

import argparse
import sys

from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.errors import CosyVoiceError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", help="its directory")
    options = parser.parse_args(arguments)
    try:
        print(Layout(options.checkpoint).family.usual_instruction)
    except CosyVoiceError as error:
        print(f"usual_instruction: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
