"""Weights of a torch module as arrays."""

from __future__ import annotations

import numpy as np
import torch


def weights_of(module: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.detach().float().numpy() for name, tensor in module.state_dict().items()}
