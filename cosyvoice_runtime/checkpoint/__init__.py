"""Where weights live on disk, how they are named, read, made and verified."""

from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.making import make_checkpoint
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.checkpoint.tensors import load_speakers, load_tensors
from cosyvoice_runtime.checkpoint.verify import verify_checkpoint

__all__ = [
    "Layout",
    "ModelConfig",
    "load_config",
    "load_speakers",
    "load_tensors",
    "make_checkpoint",
    "verify_checkpoint",
]
