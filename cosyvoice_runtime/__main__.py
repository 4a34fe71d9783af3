"""``python -m cosyvoice_runtime``: the command ``cosyvoice``."""

import sys

from cosyvoice_runtime.local.cli import main

sys.exit(main())
