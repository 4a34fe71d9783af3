"""A model that never gets ready."""

HANGING = "the model hangs while it loads"
"""What it writes into the server's log."""
HANGING_MODEL = f'''
import signal


class TritonPythonModel:
    def initialize(self, args):
        print("{HANGING}", flush=True)
        signal.pause()
'''
"""Its ``model.py``."""
