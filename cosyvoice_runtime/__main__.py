"""``python -m cosyvoice_runtime``: the command ``cosyvoice``."""

import sys

from cosyvoice_runtime.pipeline.cli import main

sys.exit(main())
