"""Which families of checkpoints the models of the repository can serve."""

from __future__ import annotations

from pathlib import Path

from cosyvoice_runtime.checkpoint.family import COSYVOICE2
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.errors import CheckpointError


def require_served(checkpoint: Path) -> None:
    """
    Raises:
        CheckpointError: the server can't speak with a checkpoint of this family.
    """
    family = Layout(checkpoint).family
    if family is not COSYVOICE2:
        raise CheckpointError(
            f"{checkpoint}/{family.config_file}: the server speaks with checkpoints of {COSYVOICE2.name}; "
            f"with those of {family.name} the library and the command `cosyvoice speak` do"
        )
