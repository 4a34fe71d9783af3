"""``python -m cosyvoice_front [SECTION.KEY=VALUE ...]``: run the front until Ctrl-C or SIGTERM."""

import sys

from cosyvoice_runtime.process.command import run_command

NEEDED = "python3 scripts/environment.py --front, or pip install --no-deps -r requirements/front.txt"

if __name__ == "__main__":
    sys.exit(run_command("cosyvoice_front", NEEDED))
