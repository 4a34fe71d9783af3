"""The vocoder's decoder in fused kernels: channels last, each convolution with what follows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyvoice_runtime.gpu.kernels.arithmetic import LATE, NOT_CHAINED
from cosyvoice_runtime.gpu.kernels.rows import GpuRow, row_on
from cosyvoice_runtime.gpu.kernels.tiles import Tile, row_conv_tile
from cosyvoice_runtime.vocoder.kernels.row_conv import LEAST_WIDTH, RowConvWeights, row_conv, snakes
from cosyvoice_runtime.vocoder.torch.causal import PaddedConv, RepeatingConv
from cosyvoice_runtime.vocoder.torch.hift import HEAD_SLOPE, Decoder, ResBlock, Snake
from cosyvoice_runtime.vocoder.torch.source import Rows


def padded(channels: int) -> int:
    """Channels of a signal in memory; those beyond are zeros."""
    return max(LEAST_WIDTH, 1 << (channels - 1).bit_length())


def _filled(tensor: Tensor, shape: Sequence[int], value: float = 0.0) -> Tensor:
    """A larger tensor that begins with this one."""
    larger = tensor.new_full(tuple(shape), value)
    larger[tuple(map(slice, tensor.shape))] = tensor
    return larger


def zeros_around(conv: nn.Conv1d) -> tuple[int, int]:
    """Zeros that a convolution puts before and after its input."""
    if isinstance(conv, PaddedConv):
        return conv.edges
    padding = int(conv.padding[0])
    return padding, padding


def convolution(conv: nn.Conv1d, dtype: torch.dtype) -> RowConvWeights:
    """Weights of a convolution that keeps the length."""
    outputs, inputs, taps = conv.weight.shape
    weight = conv.weight.detach().to(dtype).permute(2, 1, 0)
    return RowConvWeights(
        _filled(weight, (taps, padded(inputs), padded(outputs))),
        _bias(conv),
        -zeros_around(conv)[0],
        conv.dilation[0],
    )


def strided(conv: nn.Conv1d) -> RowConvWeights:
    """Weights of one that reads whole blocks of as many steps as it strides, as one channel each."""
    outputs, inputs, kernel = conv.weight.shape
    [stride] = conv.stride
    blocks = conv.weight.detach().permute(2, 1, 0).unflatten(0, (kernel // stride, stride))
    weight = _filled(blocks, (kernel // stride, stride, padded(inputs), padded(outputs)))
    return RowConvWeights(weight.flatten(1, 2), _bias(conv), 0)


@singledispatch
def upsampling(conv: nn.Module) -> RowConvWeights:
    """Weights of one that multiplies the length by its rate: as many steps of output as channels of a step.

    Raises:
        TypeError: no such layer is known.
    """
    raise TypeError(f"no upsampling layer: {type(conv).__name__}")


@upsampling.register
def _transposed(conv: nn.ConvTranspose1d) -> RowConvWeights:
    kernel, rate, edge = conv.weight.shape[2], conv.stride[0], int(conv.padding[0])
    reads = {
        (phase, tap): (phase + edge - tap) // rate
        for phase in range(rate)
        for tap in range((phase + edge) % rate, kernel, rate)
    }
    return _in_phases(conv.weight.detach().permute(2, 0, 1), reads, rate, _bias(conv))


@upsampling.register
def _repeating(conv: RepeatingConv) -> RowConvWeights:
    kernel, rate = conv.weight.shape[2], conv.rate
    reads = {
        (phase, tap): (phase + tap - conv.edges[0]) // rate for phase in range(rate) for tap in range(kernel)
    }
    return _in_phases(conv.weight.detach().permute(2, 1, 0), reads, rate, _bias(conv))


def _in_phases(
    weight: Tensor, reads: Mapping[tuple[int, int], int], rate: int, bias: Tensor
) -> RowConvWeights:
    """Weights of a convolution that writes all phases of a step as channels.

    Args:
        weight: ``[taps, C_in, C_out]``.
        reads: the step of the input, counted from that of the output, of each phase and tap; taps of a phase
            that read the same step add up.
    """
    _, inputs, outputs = weight.shape
    first = min(reads.values())
    taps = max(reads.values()) - first + 1
    phases = torch.zeros(taps, padded(inputs), rate, padded(outputs), device=weight.device)
    for (phase, tap), step in reads.items():
        phases[step - first, :inputs, phase, :outputs] += weight[tap].float()
    return RowConvWeights(phases.flatten(2).to(weight.dtype), bias.repeat(rate), first)


def _bias(conv: nn.Conv1d | nn.ConvTranspose1d) -> Tensor:
    assert conv.bias is not None
    return _filled(conv.bias.detach().float(), (padded(len(conv.bias)),))


@dataclass(frozen=True, eq=False)
class ResBlockWeights:
    """Weights of a residual block's pairs of convolutions, and float32 ``[pairs, C]`` of their inputs."""

    firsts: tuple[RowConvWeights, ...]
    seconds: tuple[RowConvWeights, ...]
    alphas: Tensor
    between: Tensor

    @classmethod
    def of(cls, block: nn.Module) -> ResBlockWeights:
        assert isinstance(block, ResBlock)
        firsts, seconds = (
            tuple(convolution(conv, conv.weight.dtype) for conv in convs if isinstance(conv, nn.Conv1d))
            for convs in (block.convs1, block.convs2)
        )
        return cls(
            firsts,
            seconds,
            _alphas(block.activations1),
            _alphas(block.activations2),
        )


def _alphas(activations: nn.ModuleList) -> Tensor:
    snakes = [activation for activation in activations if isinstance(activation, Snake)]
    alphas = torch.stack([snake.alpha.detach().float() for snake in snakes])
    return _filled(alphas, (len(alphas), padded(alphas.shape[1])), 1.0)


class FusedDecoder(nn.Module):
    """Computes what :class:`~cosyvoice_runtime.vocoder.torch.hift.Decoder` computes; the last bits differ.

    A convolution of a residual block takes its input activated and leaves the sum with the residual, zeros
    beyond each row's end, and what the next one takes.

    Args:
        row: whether kernels start while the one before ends; None: as on the decoder's device.
    """

    def __init__(self, decoder: Decoder, row: GpuRow | None = None) -> None:
        super().__init__()
        self.plain = decoder
        row = row or row_on(decoder.conv_pre.weight.device)
        self._chained = LATE if row.chained else NOT_CHAINED
        self._dtype = decoder.conv_pre.weight.dtype
        self._first = convolution(decoder.conv_pre, self._dtype)
        self._ups = [upsampling(conv) for conv in decoder.ups]
        downs = [conv for conv in decoder.source_downs if isinstance(conv, nn.Conv1d)]
        self._source_downs = [strided(conv) for conv in downs]
        self._source_edges = [zeros_around(conv) for conv in downs]
        self._source_blocks = [ResBlockWeights.of(block) for block in decoder.source_resblocks]
        blocks = [ResBlockWeights.of(block) for block in decoder.resblocks]
        count = len(decoder.config.resblock_kernels)
        self._blocks = [blocks[start : start + count] for start in range(0, len(blocks), count)]
        self._entries = [torch.stack([block.alphas[0] for block in stage]) for stage in self._blocks]
        self._head = convolution(decoder.conv_post, self._dtype)

    def forward(self, mel: Tensor, source: Tensor, rows: Rows) -> Tensor:
        """Waveform [B, hop * T] float32 of mel [B, bins, T] and source [B, hop * T] float32."""
        decoder = self.plain
        lengths = rows.lengths()
        spectrum = decoder.fourier.transform(source, rows, decoder.spectral_rate).transpose(1, 2)
        spectrum = self._wide(spectrum)
        mel = self._wide(rows.trim()(mel.to(self._dtype, copy=True)).transpose(1, 2))
        hidden = self._conv(mel, self._first, lengths)
        for index, stage in enumerate(decoder.stages):
            up = self._up(index, F.leaky_relu(hidden, decoder.config.leaky_slope), lengths)
            lengths = rows.lengths(stage.steps_per_frame, int(stage.is_last))
            hidden = self._stage(index, up, spectrum, lengths)
        head = self._conv(F.leaky_relu(hidden, HEAD_SLOPE), self._head, lengths, torch.float32)
        return decoder.waveform(head[..., : spectrum_bins(decoder)].transpose(1, 2), rows)

    def _wide(self, signal: Tensor) -> Tensor:
        """In the network's type, with as many channels as the kernels take."""
        channels = signal.shape[2]
        return F.pad(signal.to(self._dtype), (0, padded(channels) - channels))

    def _up(self, index: int, hidden: Tensor, lengths: Tensor) -> Tensor:
        """``[B, rate * S, C]`` of ``[B, S, 2 C]``."""
        rate = self.plain.stages[index].rate
        return self._conv(hidden, self._ups[index], lengths).unflatten(2, (rate, -1)).flatten(1, 2)

    def _stage(self, index: int, up: Tensor, spectrum: Tensor, lengths: Tensor) -> Tensor:
        """``[B, S, C]``, the mean of the residual blocks."""
        source = self._source(index, spectrum, lengths)
        blocks, entries = self._blocks[index], self._entries[index]
        hidden = torch.empty_like(source)
        actives, outs = (source.new_empty(len(blocks), *source.shape) for _ in range(2))
        snakes(up, source, entries, lengths, hidden, actives, self._chained)
        for block, active, out in zip(blocks, actives, outs, strict=True):
            self._block(block, hidden, active, lengths, out)
        return outs.mean(0)

    def _source(self, index: int, spectrum: Tensor, lengths: Tensor) -> Tensor:
        """Input of a stage from the source: ``[B, S, C]``."""
        stage, block, weights = (
            self.plain.stages[index], self._source_blocks[index], self._source_downs[index],
        )  # fmt: skip
        x = _in_blocks(spectrum, stage.source_stride, self._source_edges[index], len(weights.weight))
        steps = x.shape[1] - len(weights.weight) + 1
        signal, active = (x.new_empty(len(x), steps, len(weights.bias)) for _ in range(2))
        row_conv(
            x, weights, lengths, self._tile(signal), None, signal, block.alphas[0], active, self._chained
        )
        self._block(block, signal, active, lengths, signal)
        return signal

    def _block(
        self, block: ResBlockWeights, signal: Tensor, active: Tensor, lengths: Tensor, out: Tensor
    ) -> None:
        """A residual block.

        Args:
            active: the signal as the first convolution takes it; overwritten.
        """
        tile, hidden = self._tile(out), torch.empty_like(active)
        for index, (first, second) in enumerate(zip(block.firsts, block.seconds, strict=True)):
            row_conv(
                active, first, lengths, tile, alpha=block.between[index], active=hidden, chained=self._chained
            )
            following = block.alphas[index + 1] if index + 1 < len(block.alphas) else None
            row_conv(
                hidden, second, lengths, tile, signal, out, following,
                None if following is None else active, self._chained,
            )  # fmt: skip
            signal = out

    def _conv(
        self, x: Tensor, weights: RowConvWeights, lengths: Tensor, dtype: torch.dtype | None = None
    ) -> Tensor:
        """A convolution alone."""
        out = x.new_empty(*x.shape[:2], len(weights.bias), dtype=dtype)
        row_conv(x, weights, lengths, self._tile(out), out=out, chained=self._chained)
        return out

    def _tile(self, out: Tensor) -> Tile:
        return row_conv_tile(out.shape[0] * out.shape[1], out.shape[2])


def spectrum_bins(decoder: Decoder) -> int:
    """Real and imaginary parts of a frame."""
    return decoder.config.istft_size + 2


def _in_blocks(spectrum: Tensor, stride: int, edges: tuple[int, int], taps: int) -> Tensor:
    """``[B, blocks, stride * C]`` of ``[B, F, C]``, with zeros before and after."""
    if stride == 1:
        return spectrum
    frames, (before, after) = spectrum.shape[1], edges
    blocks = (frames + before + after - taps * stride) // stride + taps
    return (
        F.pad(spectrum, (0, 0, before, blocks * stride - frames - before))
        .unflatten(1, (blocks, stride))
        .flatten(2)
    )
