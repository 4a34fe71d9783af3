"""``python -m cosyvoice_dynamo [SECTION.KEY=VALUE ...]``: serve as a worker of Dynamo until SIGTERM."""

import sys

from cosyvoice_runtime.process.command import run_command

NEEDED = "pip install --no-deps -r requirements/dynamo.txt, beside what the front needs"

if __name__ == "__main__":
    sys.exit(run_command("cosyvoice_dynamo", NEEDED))
