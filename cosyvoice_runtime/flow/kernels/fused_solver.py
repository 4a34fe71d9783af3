"""All steps of the flow's solver in fused kernels."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import torch
from torch import Tensor
from torch.nn import Module

from cosyvoice_runtime.flow.kernels.convolutions import Activation, ConvWeights, causal_conv
from cosyvoice_runtime.flow.kernels.last_layer import SolverStep, norm_step
from cosyvoice_runtime.flow.kernels.layers import norm_mish_add, norm_widen, residual_linear
from cosyvoice_runtime.flow.kernels.paged_attention import norm_attention, paged_attention
from cosyvoice_runtime.flow.kernels.qkv import Linear, folded, linear_of, norm_qkv, packed_qkv
from cosyvoice_runtime.flow.torch.call_pages import Places
from cosyvoice_runtime.flow.torch.estimator import ConvBlock, Estimator, TransformerBlock, UNetStage
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.layers import CausalConv
from cosyvoice_runtime.flow.torch.solver import Conditions, FlowSolver
from cosyvoice_runtime.gpu.kernels.arithmetic import EARLY, LATE, NOT_CHAINED
from cosyvoice_runtime.gpu.kernels.rows import GpuRow, row_on
from cosyvoice_runtime.gpu.kernels.tiles import AttentionParts, Tiles

if TYPE_CHECKING:
    from typing import Self

AnyTiles = TypeVar("AnyTiles", bound=AttentionParts)


@dataclass(frozen=True, eq=False)
class BlockWeights:
    """Weights of a transformer block as the linear kernels take them; ``attention`` is the layer's number."""

    attention: int
    qkv: Linear
    out: Linear
    widen: Linear
    narrow: Linear


def block_weights(block: Module) -> BlockWeights:
    """Weights of CosyVoice2's block."""
    assert isinstance(block, TransformerBlock)
    widen, bias = folded(block.norm_feed_forward, block.widen)
    return BlockWeights(
        attention=block.attention,
        qkv=packed_qkv(block.norm_attention, block.qkv, block.qkv.out_features // 3 // block.heads),
        out=linear_of(block.out),
        widen=(widen.to(block.widen.weight.dtype), bias),
        narrow=linear_of(block.narrow),
    )


@dataclass(frozen=True, eq=False)
class StageWeights:
    """Weights of a residual block and its transformer blocks.

    Attributes:
        first: the first convolution, and in further columns the shortcut.
        first_norm, second_norm: scale and shift after each convolution.
        added: float32 ``[steps, C]`` of the time, after the first.
    """

    first: ConvWeights
    first_norm: tuple[Tensor, Tensor]
    added: Tensor
    second: ConvWeights
    second_norm: tuple[Tensor, Tensor]
    blocks: tuple[BlockWeights, ...]

    @classmethod
    def of(cls, stage: UNetStage, added: Tensor) -> StageWeights:
        resnet = stage.resnet
        return cls(
            first=with_shortcut(conv_weights(resnet.first.conv), resnet.shortcut),
            first_norm=norm_weights(resnet.first),
            added=added.float(),
            second=conv_weights(resnet.second.conv),
            second_norm=norm_weights(resnet.second),
            blocks=tuple(map(block_weights, stage.blocks)),
        )


def conv_weights(conv: CausalConv) -> ConvWeights:
    return ConvWeights(conv.window.weight.detach(), conv.window.bias.float(), conv.tail.offset)


def with_shortcut(conv: ConvWeights, shortcut: torch.nn.Linear) -> ConvWeights:
    """Twice the columns: the convolution, and the shortcut as one whose earlier taps are zero."""
    weight = torch.zeros_like(conv.weight)
    weight[:, -shortcut.in_features :] = shortcut.weight
    return ConvWeights(
        torch.cat([conv.weight, weight]), torch.cat([conv.bias, shortcut.bias.float()]), conv.tail
    )


def norm_weights(block: ConvBlock) -> tuple[Tensor, Tensor]:
    return block.norm.weight.float(), block.norm.bias.float()


class Workspace:
    """Memory between the kernels of a call, of M frames in all rows.

    Attributes:
        packed: ``[M, in_channels]`` noisy mel, token encoding, speaker and prompt.
        joined: float32 ``[M, 2 C]``; the residual of the mid stages, then the down stage's, which is
            the up stage's skip connection.
        residual: float32 ``[M, C]`` of the up stage.
        first, second: float32 ``[M, 2 C]`` and ``[M, C]``, outputs of convolutions.
        active: ``[M, C]`` the first convolution's output after its activation, where that is apart.
        queries, wide: ``[M, inner]`` and ``[M, 4 C]``.
        mixed, weights: ``[splits, M, inner]`` and ``[splits, M, H]`` from attention.
    """

    def __init__(self, estimator: Estimator, rows: int, frames: int, splits: int) -> None:
        parameter, layout = estimator.projection.weight, estimator.layout
        device = parameter.device
        total, channels = rows * frames, estimator.projection.in_features
        inner = layout.heads * layout.head_dim

        def empty(*shape: int, dtype: torch.dtype = parameter.dtype) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        self.packed = empty(total, estimator.sinusoid_width)
        self.joined = empty(total, 2 * channels, dtype=torch.float32)
        self.residual = empty(total, channels, dtype=torch.float32)
        self.first = empty(total, 2 * channels, dtype=torch.float32)
        self.second = empty(total, channels, dtype=torch.float32)
        self.active = empty(total, channels)
        self.queries, self.wide = empty(total, inner), empty(total, 4 * channels)
        self.mixed = empty(splits, total, inner)
        self.weights = empty(splits, total, layout.heads, dtype=torch.float32)


class FusedPagedSolver(ABC, Generic[AnyTiles]):
    """Computes what ``num_steps`` calls of :meth:`FlowSolver.step` compute over paged pasts.

    The last bits differ from the plain way: residuals and norms stay float32 throughout.

    Args:
        device: of the estimator.
        row: tiles, and whether kernels start while the one before ends; None: those of the device.
    """

    def __init__(self, solver: FlowSolver, device: torch.device, row: GpuRow | None) -> None:
        self._solver, self._row = solver, row or row_on(device)
        # The interpreter on a CPU has room for everything.
        on_gpu = device.type == "cuda"
        self._multiprocessors = (
            torch.cuda.get_device_properties(device).multi_processor_count if on_gpu else 1 << 20
        )

    def on(self, multiprocessors: int) -> Self:
        """A solver with the same weights, with tiles for a partition that has so many multiprocessors."""
        other = copy.copy(self)
        other._multiprocessors = multiprocessors
        return other

    def solve(
        self,
        mel: Tensor,
        guided: Conditions,
        places: Places,
        steps: int | None = None,
        tiles: AnyTiles | None = None,
    ) -> None:
        """Take ``mel`` through the first ``steps``, by default all.

        Nothing here depends on values that only the host knows, so a call can be captured in a CUDA graph.

        Args:
            mel: float32 ``[B, T, mel]``: noise, and then the solution.
            guided: from :meth:`FlowSolver.guided`, for the rows of guidance.
        """
        tiles = tiles or self._tiles(places)
        chained = (EARLY if tiles.early else LATE) if self._row.chained else NOT_CHAINED
        take_step = self._begin(mel, guided, places, tiles, chained)
        for step in range(self._solver.num_steps)[:steps]:
            take_step(step)

    def _steps(self, mel: Tensor, packed: Tensor) -> list[SolverStep]:
        """Make the steps of a call, which work in its memory."""
        solver, frames = self._solver, mel.flatten(0, 1)
        before = torch.empty_like(frames) if solver.looks_back else None
        slopes = solver.slopes.split(1) if solver.looks_back else [None] * solver.num_steps
        return [
            SolverStep(size, solver.cfg_rate, frames, packed, slope, before)
            for size, slope in zip(solver.step_sizes.split(1), slopes, strict=True)
        ]

    @abstractmethod
    def _tiles(self, places: Places) -> AnyTiles: ...

    @abstractmethod
    def _begin(
        self, mel: Tensor, guided: Conditions, places: Places, tiles: AnyTiles, chained: int
    ) -> Callable[[int], None]:
        """Prepare the memory of a call, and give the function that takes the step of a number."""


class FusedSolver(FusedPagedSolver[Tiles]):
    """The steps of CosyVoice2's estimator."""

    def __init__(self, estimator: Estimator, solver: FlowSolver, row: GpuRow | None = None) -> None:
        super().__init__(solver, estimator.projection.weight.device, row)
        self._estimator = estimator
        stages = (estimator.down, *estimator.mid, estimator.up)
        self._stages = [
            StageWeights.of(stage, added) for stage, added in zip(stages, solver.time_biases, strict=True)
        ]
        self._down_conv, self._up_conv = conv_weights(estimator.down_conv), conv_weights(estimator.up_conv)
        self._final, self._final_norm = conv_weights(estimator.final.conv), norm_weights(estimator.final)
        self._projection = linear_of(estimator.projection)

    @classmethod
    def of(cls, flow: Flow, row: GpuRow | None = None) -> FusedSolver:
        return cls(flow.network.unet, flow.solver, row)

    def _begin(
        self, mel: Tensor, guided: Conditions, places: Places, tiles: Tiles, chained: int
    ) -> Callable[[int], None]:
        rows, frames = places.rows, places.new_frames
        work = Workspace(self._estimator, rows, frames, tiles.splits(places.table.shape[1]))
        noisy = mel.repeat(self._solver.guidance_rows, 1, 1).to(work.packed.dtype)
        speaker = guided.speaker[:, None, :].expand(-1, frames, -1)
        torch.cat([noisy, guided.mu, speaker, guided.prompt], dim=-1, out=work.packed.view(rows, frames, -1))
        call, steps = FusedCall(work, places, tiles, chained), self._steps(mel, work.packed)

        def take_step(step: int) -> None:
            self._velocity(call, step)
            norm_step(work.second, *self._final_norm, *self._projection, steps[step], tiles.euler, chained)

        return take_step

    def _tiles(self, places: Places) -> Tiles:
        tiles = self._row.unet.of(places.rows * places.new_frames / self._multiprocessors)
        parts = places.rows * self._estimator.layout.heads * tiles.splits(places.table.shape[1])
        return tiles.crowded(parts, self._multiprocessors)

    def _velocity(self, call: FusedCall, step: int) -> None:
        """All of the estimator but its last layer; leaves ``second``."""
        work = call.work
        middle, skip = work.joined.chunk(2, dim=1)
        down, *mids, up = self._stages
        call.stage(down, work.packed, skip, step)
        call.conv(skip, self._down_conv, step, middle)
        for stage in mids:
            call.stage(stage, middle, middle, step)
        call.stage(up, work.joined, work.residual, step)
        call.conv(work.residual, self._up_conv, step, work.first[:, : work.second.shape[1]])
        call.conv(work.first[:, : work.second.shape[1]], self._final, step, work.second)


@dataclass(frozen=True, eq=False)
class FusedCall:
    """The estimator's parts on one call's memory."""

    work: Workspace
    places: Places
    tiles: Tiles
    chained: int

    def conv(
        self, x: Tensor, weights: ConvWeights, step: int, out: Tensor, activation: Activation | None = None
    ) -> None:
        causal_conv(x, weights, self.places, step, out, self.tiles.conv, activation, self.chained)

    def stage(self, stage: StageWeights, x: Tensor, residual: Tensor, step: int) -> None:
        """Compute ``residual`` from ``x``, which may be the same memory."""
        work = self.work
        self.conv(x, stage.first, step, work.first)
        hidden, shortcut = work.first.chunk(2, dim=1)
        added = stage.added[step]
        if self.tiles.apart:
            norm_mish_add(
                hidden,
                *stage.first_norm,
                added.expand_as(hidden),
                work.active,
                self.tiles.finish,
                self.chained,
            )
            self.conv(work.active, stage.second, step, work.second)
        else:
            self.conv(hidden, stage.second, step, work.second, Activation(*stage.first_norm, added))
        norm_mish_add(work.second, *stage.second_norm, shortcut, residual, self.tiles.finish, self.chained)
        for block in stage.blocks:
            self.block(block, residual, step)

    def block(self, block: BlockWeights, x: Tensor, step: int) -> None:
        """A transformer block on the residual ``x``."""
        work, tiles, places, chained = self.work, self.tiles, self.places, self.chained
        layer, parts = block.attention, (work.mixed, work.weights)
        if places.blocks == 1 and tiles.joint is not None:
            norm_attention(x, *block.qkv, places, layer, step, *parts, tiles.joint, chained)
        else:
            norm_qkv(x, *block.qkv, work.queries, places, layer, step, tiles.qkv, chained)
            paged_attention(work.queries, places, layer, step, *parts, tiles.attention, chained)
        residual_linear(work.mixed, work.weights, *block.out, x, tiles.out, chained)
        norm_widen(x, *block.widen, work.wide, tiles.widen, chained)
        residual_linear(work.wide[None], work.weights, *block.narrow, x, tiles.narrow, chained)
