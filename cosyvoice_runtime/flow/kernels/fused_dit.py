"""All steps of the solver of CosyVoice3's flow in fused kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Module

from cosyvoice_runtime.flow.kernels.convolutions import GroupedConvWeights, grouped_conv
from cosyvoice_runtime.flow.kernels.fused_solver import BlockWeights, FusedPagedSolver
from cosyvoice_runtime.flow.kernels.last_layer import linear_step
from cosyvoice_runtime.flow.kernels.layers import dense, modulated_norm, residual_linear
from cosyvoice_runtime.flow.kernels.paged_attention import paged_attention
from cosyvoice_runtime.flow.kernels.qkv import Linear, linear_of, softmax_scale, turned_qkv
from cosyvoice_runtime.flow.torch.call_pages import Places
from cosyvoice_runtime.flow.torch.dit import BLOCK_MODULATIONS, DiT, DiTBlock, GroupedConv, Rotation
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.solver import Conditions, FlowSolver
from cosyvoice_runtime.flow.voice_flow import MAX_FRAMES
from cosyvoice_runtime.gpu.kernels.dit_tiles import DiTTiles
from cosyvoice_runtime.gpu.kernels.rows import GpuRow


def dit_block_weights(block: Module, head_dim: int) -> BlockWeights:
    """Weights of CosyVoice3's block."""
    assert isinstance(block, DiTBlock)
    weight, bias = block.qkv.weight.float(), block.qkv.bias.float()
    scale = softmax_scale(weight, head_dim)
    return BlockWeights(
        attention=block.attention,
        qkv=((weight * scale[:, None]).to(block.qkv.weight.dtype), bias * scale),
        out=linear_of(block.out),
        widen=linear_of(block.widen),
        narrow=linear_of(block.narrow),
    )


@dataclass(frozen=True)
class Modulation:
    """Numbers of the time for one part of a block: float32 ``[steps, C]`` each.

    Attributes:
        gain, shift: of its norm, the gain one more than the network's scale.
        gate: of what it adds to the residual.
    """

    gain: Tensor
    shift: Tensor
    gate: Tensor


def modulations(biases: Tensor) -> Iterator[tuple[Modulation, Modulation]]:
    """Numbers for attention and feed-forward of every block, of ``[6 * blocks + 2, steps, C]``."""
    for start in range(0, len(biases) - 2, BLOCK_MODULATIONS):
        shift, scale, gate, wide_shift, wide_scale, wide_gate = biases[start : start + BLOCK_MODULATIONS]
        yield Modulation(1 + scale, shift, gate), Modulation(1 + wide_scale, wide_shift, wide_gate)


class DiTMemory:
    """Memory between the kernels of a call, of M frames in all rows.

    Attributes:
        packed: ``[M, 4 * mel]`` noisy mel, prompt, mixed tokens and speaker.
        x: float32 ``[M, C]`` the residual.
        normed: ``[M, C]`` what a layer reads.
        queries, wide: ``[M, inner]`` and ``[M, feed-forward]``.
        mixed, weights: ``[splits, M, inner]`` and ``[splits, M, H]`` from attention.
    """

    def __init__(self, estimator: DiT, frames: int, splits: int) -> None:
        like, heads = estimator.input.weight, estimator.layout.heads
        width, packed = like.shape
        inner = heads * estimator.head_dim
        self.packed = like.new_empty(frames, packed)
        self.x = like.new_empty(frames, width, dtype=torch.float32)
        self.normed = like.new_empty(frames, width)
        self.queries = like.new_empty(frames, inner)
        self.wide = like.new_empty(frames, _feed_forward_width(estimator))
        self.mixed = like.new_empty(splits, frames, inner)
        self.weights = like.new_empty(splits, frames, heads, dtype=torch.float32)


def _feed_forward_width(estimator: DiT) -> int:
    block = estimator.blocks[0]
    assert isinstance(block, DiTBlock)
    return block.widen.out_features


class FusedDiTSolver(FusedPagedSolver[DiTTiles]):
    """The steps of CosyVoice3's estimator."""

    def __init__(self, estimator: DiT, solver: FlowSolver, row: GpuRow | None = None) -> None:
        device = estimator.input.weight.device
        super().__init__(solver, device, row)
        self._estimator = estimator
        self._input, self._projection = linear_of(estimator.input), linear_of(estimator.projection)
        self._convs = [_conv_weights(conv) for conv in estimator.positions]
        self._blocks = [dit_block_weights(block, estimator.head_dim) for block in estimator.blocks]
        biases = solver.time_biases.float()
        self._modulations = list(modulations(biases))
        self._final_gain, self._final_shift = 1 + biases[-2], biases[-1]
        self._rotation = Rotation.of(torch.arange(MAX_FRAMES, device=device)[None], estimator.head_dim)

    @classmethod
    def of(cls, flow: Flow, row: GpuRow | None = None) -> FusedDiTSolver:
        estimator = flow.network.estimator
        assert isinstance(estimator, DiT)
        return cls(estimator, flow.solver, row)

    def _tiles(self, places: Places) -> DiTTiles:
        return self._row.dit.of(places.rows * places.new_frames / self._multiprocessors)

    def _begin(
        self, mel: Tensor, guided: Conditions, places: Places, tiles: DiTTiles, chained: int
    ) -> Callable[[int], None]:
        rows, frames = places.rows, places.new_frames
        memory = DiTMemory(self._estimator, rows * frames, tiles.splits(places.table.shape[1]))
        speaker = guided.speaker[:, None, :].expand(-1, frames, -1)
        noisy = mel.repeat(self._solver.guidance_rows, 1, 1).to(memory.packed.dtype)
        torch.cat(
            [noisy, guided.prompt, guided.mu, speaker], dim=-1, out=memory.packed.view(rows, frames, -1)
        )
        call = FusedDiTCall(memory, places, tiles, chained, self._rotation)
        steps = self._steps(mel, memory.packed)

        def take_step(step: int) -> None:
            call.enter(self._input, self._convs, step)
            for weights, (attention, feed_forward) in zip(self._blocks, self._modulations, strict=True):
                call.attention(weights, attention, step)
                call.feed_forward(weights, feed_forward, step)
            call.norm(self._final_gain[step], self._final_shift[step])
            linear_step(memory.normed, *self._projection, steps[step], tiles.leave, chained)

        return take_step


def _conv_weights(conv: Module) -> GroupedConvWeights:
    assert isinstance(conv, GroupedConv)
    return GroupedConvWeights.of(conv.conv, conv.tail.offset)


@dataclass(frozen=True, eq=False)
class FusedDiTCall:
    """The estimator's parts on one call's memory.

    Attributes:
        rotation: of every frame that an utterance can have.
    """

    memory: DiTMemory
    places: Places
    tiles: DiTTiles
    chained: int
    rotation: Rotation

    def enter(self, weights: Linear, convs: list[GroupedConvWeights], step: int) -> None:
        """The residual's start: the input's layer, and on it what the two convolutions make of it."""
        memory, tiles, chained = self.memory, self.tiles, self.chained
        first, second = convs
        dense(memory.packed, *weights, memory.x, tiles.enter, chained=chained)
        grouped_conv(memory.x, first, self.places, step, memory.normed, tiles.conv, chained=chained)
        grouped_conv(memory.normed, second, self.places, step, memory.x, tiles.conv, True, chained)

    def norm(self, gain: Tensor, shift: Tensor) -> None:
        modulated_norm(self.memory.x, gain, shift, self.memory.normed, self.tiles.norm, self.chained)

    def attention(self, block: BlockWeights, modulation: Modulation, step: int) -> None:
        memory, places, tiles, chained = self.memory, self.places, self.tiles, self.chained
        layer, parts = block.attention, (memory.mixed, memory.weights)
        self.norm(modulation.gain[step], modulation.shift[step])
        turned_qkv(
            memory.normed, *block.qkv, self.rotation, memory.queries, places, layer, step, tiles.qkv, chained
        )
        paged_attention(memory.queries, places, layer, step, *parts, tiles.attention, chained)
        residual_linear(*parts, *block.out, memory.x, tiles.out, chained, modulation.gate[step])

    def feed_forward(self, block: BlockWeights, modulation: Modulation, step: int) -> None:
        memory, tiles, chained = self.memory, self.tiles, self.chained
        self.norm(modulation.gain[step], modulation.shift[step])
        dense(memory.normed, *block.widen, memory.wide, tiles.widen, True, chained)
        residual_linear(
            memory.wide[None], memory.weights, *block.narrow, memory.x, tiles.narrow, chained,
            modulation.gate[step],
        )  # fmt: skip
