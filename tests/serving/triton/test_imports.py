from __future__ import annotations

import subprocess
import sys


def test_calls_between_models_are_imported_without_torch():
    program = (
        "import sys, cosyvoice_runtime.serving.triton.grpc_calls\n"
        "sys.exit(0 if 'tritonclient' in sys.modules and 'torch' not in sys.modules else 'torch is imported')"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
