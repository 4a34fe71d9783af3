#!/usr/bin/env python3
"""Render the templates of model_repo/ into a model repository that a server can load.

    render_model_repo.py --output build/model_repo checkpoint_dir=checkpoints/tiny token2wav.max_batch=4

Settings come from COSYVOICE_* variables and from KEY=VALUE or SECTION.KEY=VALUE here, the latter first.
An output that already holds the same files is left alone.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

from cosyvoice_runtime.engine.measured_threads import with_measured_threads
from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.settings import Machine, Settings
from cosyvoice_runtime.settings.repository import render, write
from cosyvoice_runtime.settings.served_family import require_served

TEMPLATES = Path(__file__).resolve().parent.parent / "model_repo"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--templates", type=Path, default=TEMPLATES, help="default: model_repo/")
    parser.add_argument("--output", type=Path, required=True, help="the model repository to write")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        settings = with_measured_threads(Settings.read(options.settings, os.environ), Machine.here())
        require_served(settings)
        files = render(options.templates, settings)
        changed = write(files, options.output)
    except CosyVoiceError as error:
        print(f"render_model_repo: {error}", file=sys.stderr)
        return 2 if isinstance(error, InvalidInput) else 1  # as stage 3 ends with wrong settings
    print(f"{options.output}: {len(files)} files {'written' if changed else 'unchanged, nothing to do'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
