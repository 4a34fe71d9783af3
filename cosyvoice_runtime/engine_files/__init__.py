"""What an engine was built from, kept beside it."""

from cosyvoice_runtime.engine_files.gpu import Gpu, present_gpu
from cosyvoice_runtime.engine_files.manifest import (
    Manifest,
    differences,
    require_current,
    sha256_of,
    stale_reasons,
)

__all__ = [
    "Gpu",
    "Manifest",
    "differences",
    "present_gpu",
    "require_current",
    "sha256_of",
    "stale_reasons",
]
