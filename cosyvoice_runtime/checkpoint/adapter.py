"""Adapters of low rank (LoRA, arXiv 2106.09685) beside a checkpoint; one may be folded into the speech LM's
weights.

One is what the package peft saves: a configuration, and of each adapted layer two matrices.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint.json_file import read_json
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.safetensors_file import read_safetensors
from cosyvoice_runtime.errors import CheckpointError, shorten

logger = logging.getLogger(__name__)

SIDE = re.compile(r"(?:base_model\.model\.)?(?P<layer>.+)\.lora_(?P<side>[AB])(?:\.default)?\.weight")
PLAIN = {"peft_type": "LORA", "use_dora": False, "fan_in_fan_out": False, "bias": "none", "lora_bias": False}
"""Entries of the configuration, and the values that are understood."""


class Adapter(NamedTuple):
    """An adapter's configuration and its matrices.

    Attributes:
        down, up: ``[rank, inputs]`` and ``[outputs, rank]`` by layer.
    """

    path: Path
    config: dict[str, Any]
    down: dict[str, Array]
    up: dict[str, Array]

    @classmethod
    def read(cls, config: Path, weights: Path) -> Adapter:
        """Read the two files; a CheckpointError tells what is not understood."""
        content = read_json(config)
        for name, value in PLAIN.items():
            if (found := content.get(name, value)) != value:
                raise CheckpointError(f"{config}: {name} is {shorten(found)}; only {value!r} is understood")
        sides: dict[str, dict[str, Array]] = {"A": {}, "B": {}}
        for name, array in read_safetensors(weights).items():
            match = SIDE.fullmatch(name)
            if match is None:
                raise CheckpointError(f"{weights}: {name} is no matrix of a linear layer's adapter")
            if not isinstance(array, np.ndarray):
                raise CheckpointError(f"{weights}: {name} has {array}")
            sides[match["side"]][match["layer"]] = array
        for layer in sides["A"].keys() ^ sides["B"].keys():
            raise CheckpointError(f"{weights}: {layer} has one matrix of two")
        if not sides["A"]:
            raise CheckpointError(f"{weights}: it has no matrix of an adapter")
        return cls(weights, content, sides["A"], sides["B"])

    def delta(self, layer: str) -> Array:
        """The float32 addend ``[outputs, inputs]`` of a layer's weight."""
        self.check(layer)
        down, up = (side[layer].astype(np.float32) for side in (self.down, self.up))
        delta: Array = self.scale(layer) * (up @ down)
        if not np.isfinite(delta).all():
            raise CheckpointError(f"{self.path}: {layer} has NaN or infinity")
        return delta

    def check(self, layer: str) -> tuple[int, int]:
        """Outputs and inputs of a layer, whose matrices fit each other and the configuration."""
        down, up = self.down[layer], self.up[layer]
        if down.ndim != 2 or up.ndim != 2 or down.shape[0] != up.shape[1]:
            raise CheckpointError(
                f"{self.path}: {layer} has matrices {down.shape} and {up.shape}, which don't fit each other"
            )
        self.scale(layer)
        return len(up), down.shape[1]

    def scale(self, layer: str) -> float:
        """The factor of the product of a layer's matrices."""
        rank = len(self.down[layer])
        alpha = self._of(layer, "alpha_pattern", self.config.get("lora_alpha"))
        if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not math.isfinite(alpha):
            raise CheckpointError(f"{self.path}: lora_alpha of {layer} is {shorten(alpha)}, and no number")
        wanted = self._of(layer, "rank_pattern", self.config.get("r", rank))
        if wanted != rank:
            raise CheckpointError(
                f"{self.path}: {layer} has rank {rank}, its configuration {shorten(wanted)}"
            )
        return float(alpha / math.sqrt(rank) if self.config.get("use_rslora") else alpha / rank)

    def _of(self, layer: str, pattern: str, usual: Any) -> Any:
        """The value of a layer whose name ends like an entry of a pattern, else the usual one."""
        entries = self.config.get(pattern) or {}
        fitting = [key for key in entries if layer == key or layer.endswith(f".{key}")]
        return entries[fitting[0]] if fitting else usual


def fold_adapter(layout: Layout, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """The speech LM's tensors with the adapter in the checkpoint's folder ``lora``, if there is one.

    Args:
        tensors: in the published names; weights keep their dtype, and sums are made in float32.

    Raises:
        CheckpointError: the adapter is damaged, of another kind, or of layers that the speech LM lacks.
    """
    if not layout.adapter:
        return dict(tensors)
    adapter = Adapter.read(*layout.adapter)
    folded = dict(tensors)
    for layer, name in weights_of(adapter, {name: array.shape for name, array in tensors.items()}).items():
        weight = tensors[name]
        folded[name] = (weight.astype(np.float32) + adapter.delta(layer)).astype(weight.dtype)
    ranks = sorted({len(matrix) for matrix in adapter.down.values()})
    logger.info(
        "%s is folded into %d layers of the speech LM, rank %s",
        adapter.path,
        len(adapter.down),
        " to ".join(map(str, dict.fromkeys([ranks[0], ranks[-1]]))),
    )
    return folded


def weights_of(adapter: Adapter, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
    """The published name of each adapted layer's weight; an adapter may be around an inner part of the speech
    LM.

    Args:
        shapes: of the speech LM's tensors.

    Raises:
        CheckpointError: the speech LM has no such layer, or one of another shape.
    """
    found = {}
    for layer in adapter.down:
        own = f"{layer}.weight"
        names = [name for name in shapes if name == own or name.endswith(f".{own}")]
        if len(names) != 1:
            raise CheckpointError(
                f"{adapter.path}: the speech LM has {len(names) or 'no'} layers of the name {layer}"
            )
        if (made_for := adapter.check(layer)) != tuple(shapes[names[0]]):
            raise CheckpointError(
                f"{adapter.path}: {layer} is made for {made_for}, {names[0]} is {shapes[names[0]]}"
            )
        found[layer] = names[0]
    return found
