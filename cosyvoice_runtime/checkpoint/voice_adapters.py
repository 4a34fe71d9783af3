"""Adapters of low rank that voices name, side by side for a speech LM that serves them together.

R: rank of all of them, N: adapters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.checkpoint.adapter import Adapter, weights_of
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.lm_rows import BACKBONE, PROJECTIONS
from cosyvoice_runtime.checkpoint.schema import llm_schema
from cosyvoice_runtime.errors import CheckpointError

RANKS = (16, 32, 64)
"""Ranks that kernels are made for; a smaller one is filled up with zeros. Tensor cores multiply 16 at least.
"""
MODULE_OF = {part: module for module, parts in PROJECTIONS.items() for part in parts}


class AdapterForm(NamedTuple):
    """The facts of adapters on which kernels depend: R, and the linear layers that any of them changes, by
    their names in `network.SpeechLM`; 0 and none without adapters."""

    rank: int = 0
    modules: tuple[str, ...] = ()


class VoiceAdapters(NamedTuple):
    """All adapters of a checkpoint; number 0 is none, and the others follow in the order of ``names``.

    Attributes:
        layers: of each adapter: its own name of a layer, by the published name.
    """

    names: tuple[str, ...]
    form: AdapterForm
    adapters: tuple[Adapter, ...]
    layers: tuple[dict[str, str], ...]

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
        for number, (adapter, layers) in enumerate(zip(self.adapters, self.layers, strict=True), start=1):
            for place, part in enumerate(parts):
                layer = layers.get(f"{BACKBONE}.layers.{index}.{part}")
                if layer is None:
                    continue
                first, own = sum(sizes[:place]), len(adapter.down[layer])
                down[number, place, :own] = adapter.down[layer]
                rows = up[number, first : first + sizes[place], :own]
                rows[:] = adapter.up[layer].astype(np.float32) * adapter.scale(layer)
                if not (np.isfinite(down[number, place]).all() and np.isfinite(rows).all()):
                    raise CheckpointError(f"{adapter.path}: {layer} has NaN or infinity")
        return down.reshape(len(down), -1, inputs), up


def read_voice_adapters(layout: Layout, config: SpeechLMConfig) -> VoiceAdapters:
    """The adapters in the checkpoint's folder ``adapters``; none without one.

    Raises:
        CheckpointError: the speech LM is no Qwen2, or an adapter is damaged, of another kind, of too high a
            rank, or of layers that can't be adapted by voice.
    """
    files = layout.voice_adapters
    if files:
        layout.require_qwen2("adapters by voice")
    adapters = tuple(Adapter.read(*paths) for paths in files.values())
    shapes = llm_schema(config) if files else {}
    layers = tuple(_layers(adapter, weights_of(adapter, shapes)) for adapter in adapters)
    ranks = [_rank(adapter, layer) for adapter in adapters for layer in adapter.down]
    modules = {_module(published) for each in layers for published in each}
    form = AdapterForm(
        min((rank for rank in RANKS if rank >= max(ranks, default=0)), default=0) if files else 0,
        tuple(module for module in PROJECTIONS if module in modules),
    )
    return VoiceAdapters(tuple(files), form, adapters, layers)


def _layers(adapter: Adapter, weights: dict[str, str]) -> dict[str, str]:
    """The adapter's own name of each layer, by the published name."""
    layers = {weight.removesuffix(".weight"): layer for layer, weight in weights.items()}
    for published, layer in layers.items():
        if not published.startswith(f"{BACKBONE}.layers.") or _part(published) not in MODULE_OF:
            limit = ", ".join(part.partition(".")[2] for part in MODULE_OF)
            raise CheckpointError(f"{adapter.path}: {layer} can't be adapted by voice; {limit} can")
    return layers


def _rank(adapter: Adapter, layer: str) -> int:
    rank = len(adapter.down[layer])
    if not 1 <= rank <= RANKS[-1]:
        raise CheckpointError(f"{adapter.path}: {layer} has rank {rank}; by voice it is 1 to {RANKS[-1]}")
    return rank


def _part(published: str) -> str:
    """A published layer's name within its decoder layer."""
    return published.removeprefix(f"{BACKBONE}.layers.").partition(".")[2]


def _module(published: str) -> str:
    return MODULE_OF[_part(published)]
