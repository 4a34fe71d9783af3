"""Compile what a server is about to capture: ``python -m cosyvoice_runtime.compilation REPOSITORY LOCK``.

Prints ``DONE of FOUND`` after each kernel, of those that have been found so far. LOCK is the descriptor of
the lock on the speech LM's kernels, which is freed when those are compiled.
"""

from __future__ import annotations

import fcntl
import sys
from functools import partial
from pathlib import Path

from cosyvoice_runtime.compilation.captures import find_forms
from cosyvoice_runtime.compilation.compiler import ForkedCompiler
from cosyvoice_runtime.compilation.deployment import Deployment
from cosyvoice_runtime.compilation.forms import Compiled, Form, compile_for
from cosyvoice_runtime.gpu.kernels.ahead import note_compiled
from cosyvoice_runtime.settings.machine import usable_cores


def main(repository: Path, lm_lock: int) -> None:
    deployment = Deployment.read(repository)
    compile_for(deployment.gpu.capability)
    found: list[Form] = []
    compiled: list[Compiled] = []

    def tell(form: Compiled) -> None:
        compiled.append(form)
        print(len(compiled), "of", len(found), form.failure and f"{form.kernel}: {form.failure}", flush=True)

    compiler = ForkedCompiler(usable_cores(), tell)

    def begin(form: Form) -> None:
        found.append(form)
        compiler.take(form)

    free = partial(fcntl.flock, lm_lock, fcntl.LOCK_UN)
    find_forms(deployment, begin, lambda: compiler.when_done(free))
    compiler.finish()
    if not any(form.failure for form in compiled):
        note_compiled(deployment.key)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
