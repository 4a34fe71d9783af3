"""A process that compiles kernels on all cores while the networks load."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from pathlib import Path

from cosyvoice_runtime.compilation.deployment import Deployment
from cosyvoice_runtime.gpu.kernels.ahead import is_compiled, lock_cache
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.metrics.progress import StartProgress

logger = logging.getLogger(__name__)


def compile_ahead(repository: Path, metrics: Metrics) -> None:
    """Start ``python -m cosyvoice_runtime.compilation``, unless the cache has all or is being filled.

    What it can't compile is compiled when it is first launched, so that its failure ends nothing.
    """
    if is_compiled(Deployment.read(repository).key):
        return
    try:
        locks = lock_cache()
    except OSError as error:
        logger.warning("kernels are compiled one by one, when they are launched: %s", error)
        return
    if locks is None:
        logger.info("kernels are being compiled by another process")
        return
    of_lm, every = locks
    with of_lm, every:
        process = subprocess.Popen(
            [sys.executable, "-m", "cosyvoice_runtime.compilation", str(repository), str(of_lm.fileno())],
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[of_lm.fileno(), every.fileno()],
        )
    threading.Thread(target=_tell, args=(process, metrics), name="kernels", daemon=True).start()


def _tell(process: subprocess.Popen[str], metrics: Metrics) -> None:
    """Log how far a process is, and how it ended."""
    assert process.stdout is not None
    started = time.monotonic()
    progress: StartProgress | None = None
    for line in process.stdout:
        found, *failure = line.split(maxsplit=3)[2:]
        progress = progress or StartProgress(metrics, "compiled", "kernels", int(found))
        progress.grow(int(found))
        if failure:
            logger.warning("not compiled ahead: %s", failure[0].strip())
        progress()
    status = process.wait()
    logger.log(
        logging.WARNING if status else logging.INFO,
        "%d kernels compiled in %.1f s%s",
        0 if progress is None else progress.count,
        time.monotonic() - started,
        f"; the process ended with status {status}" if status else "",
    )
