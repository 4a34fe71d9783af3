"""Where weights live on disk, how they are named, read, made and verified.

Reading needs no torch; what makes and writes weights (``scripts/making``) does, and so does
``checkpoint.as_torch``, which reads them for torch.
"""

from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.checkpoint.tensors import load_speakers, load_tensors
from cosyvoice_runtime.checkpoint.verify import verify_checkpoint

__all__ = [
    "Layout",
    "ModelConfig",
    "load_config",
    "load_speakers",
    "load_tensors",
    "verify_checkpoint",
]
