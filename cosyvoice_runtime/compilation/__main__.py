"""Compile what a server is about to capture: ``python -m cosyvoice_runtime.compilation REPOSITORY``.

Prints ``DONE of TOTAL`` after each kernel.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cosyvoice_runtime.compilation.captures import forms_of
from cosyvoice_runtime.compilation.compiler import compile_forms
from cosyvoice_runtime.compilation.deployment import Deployment
from cosyvoice_runtime.compilation.forms import compile_for
from cosyvoice_runtime.gpu.kernels.ahead import note_compiled
from cosyvoice_runtime.settings.machine import usable_cores


def main(repository: Path) -> None:
    deployment = Deployment.read(repository)
    compile_for(deployment.gpu.capability)
    forms = forms_of(deployment)
    for done, form in enumerate(compile_forms(forms, usable_cores()), start=1):
        print(done, "of", len(forms), form.failure and f"{form.kernel}: {form.failure}", flush=True)
    note_compiled(deployment.key)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
