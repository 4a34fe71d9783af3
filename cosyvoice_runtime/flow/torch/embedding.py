"""Tables of vectors by id."""

from __future__ import annotations

import torch
from torch import nn


def embedding(rows: int, width: int) -> nn.Embedding:
    """``nn.Embedding``, which on the device "meta" draws no values.

    Networks are built there before their weights are read. Drawing for nobody imports all of torch's compiler
    then, which took 3 s of a start on an H200.
    """
    values = torch.empty(rows, width)
    if not values.is_meta:
        nn.init.normal_(values)
    return nn.Embedding.from_pretrained(values, freeze=False)
