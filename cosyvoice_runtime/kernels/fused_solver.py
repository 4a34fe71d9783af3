"""All steps of the flow's solver in fused kernels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cosyvoice_runtime.flow.estimator import ConvBlock, Stage, TransformerBlock
from cosyvoice_runtime.flow.layers import CausalConv
from cosyvoice_runtime.flow.solver import Conditions, EulerSolver
from cosyvoice_runtime.kernels.causal_conv import ConvWeights, causal_conv
from cosyvoice_runtime.kernels.guided_euler import guided_euler
from cosyvoice_runtime.kernels.norm_attention import norm_attention
from cosyvoice_runtime.kernels.norm_qkv import folded, norm_qkv, packed_qkv
from cosyvoice_runtime.kernels.norm_widen import norm_widen
from cosyvoice_runtime.kernels.paged_attention import paged_attention
from cosyvoice_runtime.kernels.places import Places
from cosyvoice_runtime.kernels.residual_linear import residual_linear
from cosyvoice_runtime.kernels.tiles import Tiles, tiles_for

Linear = tuple[Tensor, Tensor]
"""A weight in the network's type and its float32 bias."""


@dataclass(frozen=True, eq=False)
class BlockWeights:
    """Of a transformer block, as its four linear kernels take them; ``attention`` is the layer's number."""

    attention: int
    qkv: Linear
    out: Linear
    widen: Linear
    narrow: Linear

    @classmethod
    def of(cls, block: TransformerBlock) -> BlockWeights:
        widen, bias = folded(block.norm_feed_forward, block.widen)
        return cls(
            attention=block.attention,
            qkv=packed_qkv(block.norm_attention, block.qkv, block.qkv.out_features // 3 // block.heads),
            out=(block.out.weight.detach(), block.out.bias.float()),
            widen=(widen.to(block.widen.weight.dtype), bias),
            narrow=(block.narrow.weight.detach(), block.narrow.bias.float()),
        )


@dataclass(frozen=True, eq=False)
class StageWeights:
    """Of a residual block and its transformer blocks."""

    first: ConvWeights
    second: ConvWeights
    blocks: tuple[BlockWeights, ...]

    @classmethod
    def of(cls, stage: Stage) -> StageWeights:
        resnet = stage.resnet
        return cls(
            first=conv_weights(resnet.first),
            second=conv_weights(resnet.second, resnet.shortcut),
            blocks=tuple(map(BlockWeights.of, stage.blocks)),
        )


def conv_weights(block: ConvBlock | CausalConv, shortcut: torch.nn.Linear | None = None) -> ConvWeights:
    """As :func:`causal_conv` takes them."""
    conv, norm = (block.conv, block.norm) if isinstance(block, ConvBlock) else (block, None)
    return ConvWeights(
        weight=conv.window.weight.detach(),
        bias=conv.window.bias.float(),
        tail=conv.tail.offset,
        scale=None if norm is None else norm.weight.float(),
        shift=None if norm is None else norm.bias.float(),
        shortcut=None if shortcut is None else shortcut.weight.detach(),
        shortcut_bias=None if shortcut is None else shortcut.bias.float(),
    )


class Workspace:
    """Memory between the kernels of a call, of M frames in all rows.

    Attributes:
        packed: ``[M, in_channels]`` noisy mel, token encoding, speaker and prompt.
        joined: float32 ``[M, 2 C]``; the residual of the mid stages, and beside it the down stage's, which is
            the up stage's skip connection.
        residual: float32 ``[M, C]`` of the up stage.
        first, second: ``[M, C]`` outputs of convolutions.
        queries, wide: ``[M, inner]`` and ``[M, 4 C]``.
        mixed, weights: ``[splits, M, inner]`` and ``[splits, M, H]`` from attention.
    """

    def __init__(self, solver: EulerSolver, rows: int, frames: int, splits: int) -> None:
        estimator, dtype = solver.estimator, solver.dtype
        device, layout = solver.step_sizes.device, estimator.layout
        total, channels = rows * frames, estimator.projection.in_features
        inner = layout.heads * layout.head_dim

        def empty(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        self.packed = empty(total, estimator.sinusoid_width)
        self.joined = empty(total, 2 * channels, dtype=torch.float32)
        self.residual = empty(total, channels, dtype=torch.float32)
        self.first, self.second = empty(total, channels), empty(total, channels)
        self.queries, self.wide = empty(total, inner), empty(total, 4 * channels)
        self.mixed = empty(splits, total, inner)
        self.weights = empty(splits, total, layout.heads, dtype=torch.float32)


class FusedSolver:
    """Computes what ``num_steps`` calls of :meth:`EulerSolver.step` compute over paged pasts.

    The last bits differ from the plain way: residuals and norms stay float32 throughout.

    Args:
        chained: kernels start while the one before ends (programmatic dependent launch; NVIDIA GPUs of compute
            capability 9.0 and later).
    """

    def __init__(self, solver: EulerSolver, chained: bool) -> None:
        estimator = solver.estimator
        self._solver, self._chained = solver, chained
        self._stages = [StageWeights.of(stage) for stage in (estimator.down, *estimator.mid, estimator.up)]
        self._down_conv, self._up_conv = conv_weights(estimator.down_conv), conv_weights(estimator.up_conv)
        self._final = conv_weights(estimator.final)
        self._projection = estimator.projection.weight.detach(), estimator.projection.bias.float()
        self._added = solver.time_biases.contiguous()

    def solve(self, mel: Tensor, guided: Conditions, places: Places, tiles: Tiles | None = None) -> None:
        """Take ``mel`` through all steps.

        Nothing here depends on values that only the host knows, so a call can be captured in a CUDA graph.

        Args:
            mel: float32 ``[B, T, mel]``: noise, and then the solution.
            guided: from :meth:`EulerSolver.guided`, for ``2 B`` rows.
        """
        rows, frames = places.rows, places.new_frames
        tiles = tiles or tiles_for(rows * frames)
        work = Workspace(self._solver, rows, frames, tiles.splits(places.table.shape[1]))
        noisy = torch.cat([mel, mel]).to(work.packed.dtype)
        speaker = guided.speaker[:, None, :].expand(-1, frames, -1)
        torch.cat([noisy, guided.mu, speaker, guided.prompt], dim=-1, out=work.packed.view(rows, frames, -1))
        call = FusedCall(work, places, tiles, self._chained)
        for step in range(self._solver.num_steps):
            self._velocity(call, step)
            guided_euler(
                work.second, *self._projection, self._solver.step_sizes[step : step + 1], self._solver.cfg_rate,
                mel.flatten(0, 1), work.packed, tiles.euler, self._chained,
            )  # fmt: skip

    def _velocity(self, call: FusedCall, step: int) -> None:
        """All of the estimator but its last layer; leaves ``second``."""
        work = call.work
        middle, skip = work.joined.chunk(2, dim=1)
        added = self._added[:, step]
        down, *mids, up = self._stages
        call.stage(down, work.packed, skip, added[0], step)
        call.conv(skip, self._down_conv, step, middle)
        for stage, bias in zip(mids, added[1:-1], strict=True):
            call.stage(stage, middle, middle, bias, step)
        call.stage(up, work.joined, work.residual, added[-1], step)
        call.conv(work.residual, self._up_conv, step, work.first)
        call.conv(work.first, self._final, step, work.second)


@dataclass(frozen=True, eq=False)
class FusedCall:
    """The estimator's parts on one call's memory."""

    work: Workspace
    places: Places
    tiles: Tiles
    chained: bool

    def conv(
        self,
        x: Tensor,
        weights: ConvWeights,
        step: int,
        out: Tensor,
        added: Tensor | None = None,
        source: Tensor | None = None,
    ) -> None:
        causal_conv(x, weights, self.places, step, out, self.tiles.conv, added, source, self.chained)

    def stage(self, stage: StageWeights, x: Tensor, residual: Tensor, added: Tensor, step: int) -> None:
        """From ``x`` to ``residual``, which may be the same memory."""
        self.conv(x, stage.first, step, self.work.first, added=added)
        self.conv(self.work.first, stage.second, step, residual, source=x)
        for block in stage.blocks:
            self.block(block, residual, step)

    def block(self, block: BlockWeights, x: Tensor, step: int) -> None:
        """A transformer block on the residual ``x``."""
        work, tiles, places, chained = self.work, self.tiles, self.places, self.chained
        past = places, block.attention, step, work.mixed, work.weights
        if places.chunks == 1 and tiles.joint is not None:
            norm_attention(x, *block.qkv, *past, tiles.joint, chained)
        else:
            norm_qkv(x, *block.qkv, work.queries, places, block.attention, step, tiles.qkv, chained)
            paged_attention(work.queries, *past, tiles.attention, chained)
        residual_linear(work.mixed, work.weights, *block.out, x, tiles.out, chained)
        norm_widen(x, *block.widen, work.wide, tiles.widen, chained)
        residual_linear(work.wide[None], work.weights, *block.narrow, x, tiles.narrow, chained)
