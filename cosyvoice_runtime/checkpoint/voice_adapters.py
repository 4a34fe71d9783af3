"""Adapters of low rank that voices name, side by side for a speech LM that serves them together.

R: rank of all of them, N: adapters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.arrays import Array, Floats
from cosyvoice_runtime.checkpoint.adapter import Adapter, weights_of
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.lm_rows import BACKBONE, PROJECTIONS
from cosyvoice_runtime.checkpoint.schema import Schema, llm_schema
from cosyvoice_runtime.errors import CheckpointError

RANKS = (16, 32, 64)
"""Ranks that kernels are made for; a smaller one is filled up with zeros. Tensor cores multiply 16 at least.
"""
PARTS = tuple(part for parts in PROJECTIONS.values() for part in parts)
"""Published linear layers that can be adapted by voice."""


class AdapterForm(NamedTuple):
    """The facts of adapters on which kernels depend: R, and the linear layers that any of them changes, by
    their names in `network.SpeechLM`; 0 and none without adapters."""

    rank: int = 0
    modules: tuple[str, ...] = ()


class LayerAdapter(NamedTuple):
    """An adapter's matrices of one linear layer, as they lie in its file.

    Attributes:
        origin: file, and the layer's name there.
        down, up: ``[rank, inputs]`` and ``[outputs, rank]``.
        scale: factor of their product.
    """

    origin: str
    down: Array
    up: Array
    scale: float


class VoiceAdapters(NamedTuple):
    """All adapters of a checkpoint; number 0 is none, and the others follow in the order of ``names``.

    Attributes:
        adapters: of each its layers, by their published names.
    """

    names: tuple[str, ...]
    form: AdapterForm
    adapters: tuple[Mapping[str, LayerAdapter], ...]

    def stacked(self, index: int, module: str, sizes: Sequence[int], inputs: int) -> tuple[Floats, Floats]:
        """The matrices of one linear layer of all adapters, with zeros where an adapter has none.

        Args:
            index: of the speech LM's layer.
            module: one of the form's, of which each part has so many outputs.

        Returns:
            float32 ``[1 + N, parts * R, inputs]`` and ``[1 + N, outputs, R]``, the latter with the scale.
        """
        rank, parts = self.form.rank, PROJECTIONS[module]
        down = np.zeros((1 + len(self.names), len(parts), rank, inputs), np.float32)
        up = np.zeros((1 + len(self.names), sum(sizes), rank), np.float32)
        for number, adapter in enumerate(self.adapters, start=1):
            for place, part in enumerate(parts):
                layer = adapter.get(f"{BACKBONE}.layers.{index}.{part}")
                if layer is None:
                    continue
                first, own = sum(sizes[:place]), len(layer.down)
                down[number, place, :own] = layer.down
                rows = up[number, first : first + sizes[place], :own]
                rows[:] = layer.up.astype(np.float32) * layer.scale
                if not (np.isfinite(down[number, place]).all() and np.isfinite(rows).all()):
                    raise CheckpointError(f"{layer.origin} has NaN or infinity")
        return down.reshape(len(down), -1, inputs), up


def read_voice_adapters(layout: Layout, config: SpeechLMConfig) -> VoiceAdapters:
    """The adapters in the checkpoint's folder ``adapters``; none without one.

    Matrices are mapped memory, of which the form needs nothing.

    Raises:
        CheckpointError: the speech LM is no Qwen2, or an adapter is damaged, of another kind, of too high a
            rank, or of layers that can't be adapted by voice.
    """
    files = layout.voice_adapters
    if not files:
        return VoiceAdapters((), AdapterForm(), ())
    layout.require_qwen2("adapters by voice")
    shapes = llm_schema(config)
    adapters = tuple(_layers(Adapter.read(*paths), shapes) for paths in files.values())
    highest = max(len(layer.down) for adapter in adapters for layer in adapter.values())
    names = {name for adapter in adapters for name in adapter}
    form = AdapterForm(
        min(rank for rank in RANKS if rank >= highest),
        tuple(module for module, parts in PROJECTIONS.items() if any(name.endswith(parts) for name in names)),
    )
    return VoiceAdapters(tuple(files), form, adapters)


def _layers(adapter: Adapter, shapes: Schema) -> dict[str, LayerAdapter]:
    """An adapter's layers by their published names."""
    found = {}
    for layer, weight in weights_of(adapter, shapes).items():
        down, up = adapter.down[layer], adapter.up[layer]
        origin, name = f"{adapter.path}: {layer}", weight.removesuffix(".weight")
        if not name.endswith(PARTS):
            limit = ", ".join(part.partition(".")[2] for part in PARTS)
            raise CheckpointError(f"{origin} can't be adapted by voice; {limit} can")
        if not 1 <= len(down) <= RANKS[-1]:
            raise CheckpointError(f"{origin} has rank {len(down)}; by voice it is 1 to {RANKS[-1]}")
        found[name] = LayerAdapter(origin, down, up, adapter.scale(layer))
    return found
