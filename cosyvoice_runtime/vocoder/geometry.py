"""Shapes of the decoder's stages and how far its output looks into its inputs.

Every layer of HiFT is a convolution or a transposed convolution along time (the STFT and its inverse
included), so the context an output sample needs follows from the configuration alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from math import prod
from operator import or_

from cosyvoice_runtime.checkpoint.config import CausalVocoderConfig, VocoderConfig
from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.families import load, vocoder_parts

EDGE_KERNEL = 7
"""Kernel of the first and last convolution (HiFi-GAN, arXiv 2010.05646)."""

F0_KERNEL = 3
F0_LAYERS = 5
"""Convolutions of the F0 predictor; fixed in the published model, not configurable."""


@dataclass(frozen=True)
class UpsamplingStage:
    """One upsampling stage: transposed convolution of the mel branch, strided one of the source branch."""

    channels: int
    rate: int
    kernel: int
    padding: int
    source_kernel: int
    source_stride: int
    source_padding: int
    steps_per_frame: int
    """Time steps after this stage for each mel frame."""
    is_last: bool
    """The last stage has one step more at its start, to match the centred source STFT."""


@dataclass(frozen=True)
class VocoderContext:
    """Mel frames that must surround the frames being vocoded, for a result that more would not change."""

    left: int
    right: int
    """Frames to the right whose mel and source samples the decoder reads."""
    lookahead: int
    """Frames to the right whose mel is read at all, by the decoder or by the F0 of its source."""
    f0_past: int
    """Frames to the left that the F0 of a frame depends on."""
    f0_lookahead: int
    """Frames to the right that fix the phase of a frame's last sample; with fewer the pitch is guessed."""


def stages(config: VocoderConfig) -> list[UpsamplingStage]:
    """Upsampling stages in order; a CheckpointError for a stage that can't multiply the length exactly."""
    rates, kernels = config.upsample_rates, config.upsample_kernels
    for rate, kernel in zip(rates, kernels, strict=True):
        if config.transposed_upsampling and (kernel < rate or (kernel - rate) % 2):
            raise CheckpointError(f"hift: upsample kernel {kernel} does not fit rate {rate}")
    return [_stage(config, index) for index in range(len(rates))]


def _stage(config: VocoderConfig, index: int) -> UpsamplingStage:
    rate, kernel = config.upsample_rates[index], config.upsample_kernels[index]
    stride = prod(config.upsample_rates[index + 1 :])
    return UpsamplingStage(
        channels=config.base_channels // 2 ** (index + 1),
        rate=rate,
        kernel=kernel,
        padding=(kernel - rate) // 2,
        source_kernel=1 if stride == 1 else 2 * stride,
        source_stride=stride,
        source_padding=stride // 2,
        steps_per_frame=prod(config.upsample_rates[: index + 1]),
        is_last=index == len(config.upsample_rates) - 1,
    )


@dataclass(frozen=True)
class IndexRange:
    """Inclusive range of indices of one signal."""

    first: int
    last: int

    def conv(self, kernel: int, stride: int = 1, padding: int = 0, dilation: int = 1) -> IndexRange:
        """Input range of a convolution that writes this range."""
        first, last = self.first * stride - padding, self.last * stride - padding
        return IndexRange(first, last + dilation * (kernel - 1))

    def same(self, kernel: int, dilation: int = 1) -> IndexRange:
        """Input range of a convolution that keeps the length."""
        return self.conv(kernel, padding=dilation * (kernel - 1) // 2, dilation=dilation)

    def transposed(self, kernel: int, stride: int, padding: int) -> IndexRange:
        """Input range of a transposed convolution that writes this range."""
        return IndexRange(-((kernel - 1 - padding - self.first) // stride), (self.last + padding) // stride)

    def back(self, kernel: int, dilation: int = 1) -> IndexRange:
        """Input range of a convolution that keeps the length and looks back only."""
        return IndexRange(self.first - dilation * (kernel - 1), self.last)

    def ahead(self, kernel: int) -> IndexRange:
        """Input range of a convolution that keeps the length and looks ahead only."""
        return IndexRange(self.first, self.last + kernel - 1)

    def repeated(self, rate: int) -> IndexRange:
        """Input range of repeating each step ``rate`` times."""
        return IndexRange(self.first // rate, self.last // rate)

    def __or__(self, other: IndexRange) -> IndexRange:
        return IndexRange(min(self.first, other.first), max(self.last, other.last))


Convolution = Callable[[IndexRange, int, int], IndexRange]
"""Input range of a convolution that keeps the length: of an output range, its kernel and its dilation."""


def centred_context(config: VocoderConfig) -> VocoderContext:
    """Context in whole frames: 15 left, 15 right, 21 ahead (6 for the phase) with the published kernels."""

    def inputs(sample: int) -> tuple[IndexRange, IndexRange]:
        def upsampled(span: IndexRange, stage: UpsamplingStage) -> IndexRange:
            return span.transposed(stage.kernel, stage.rate, stage.padding)

        edges = [stage.source_padding for stage in stages(config)]
        span, source = _decoder_inputs(config, sample, IndexRange.same, upsampled, edges)
        return span.same(EDGE_KERNEL), source

    radius = F0_LAYERS * (F0_KERNEL // 2)
    # The phase between two frame centres is interpolated: a source frame reads the next frame's F0 as well.
    return _context(inputs(0), inputs(-1), config.hop, radius, 1 + radius)


def causal_context(config: CausalVocoderConfig) -> VocoderContext:
    """Context in whole frames: 28 left, 5 right, 5 ahead (3 for the phase) with the published kernels."""

    def inputs(sample: int) -> tuple[IndexRange, IndexRange]:
        def upsampled(span: IndexRange, stage: UpsamplingStage) -> IndexRange:
            return span.back(stage.kernel).repeated(stage.rate)

        edges = [stage.source_stride - 1 for stage in stages(config)]
        span, source = _decoder_inputs(config, sample, IndexRange.back, upsampled, edges)
        return span.ahead(config.first_kernel), source

    f0_past = (F0_LAYERS - 1) * (F0_KERNEL - 1)
    return _context(inputs(0), inputs(-1), config.hop, f0_past, config.first_f0_kernel - 1)


def _context(
    first: tuple[IndexRange, IndexRange],
    last: tuple[IndexRange, IndexRange],
    hop: int,
    f0_past: int,
    f0_lookahead: int,
) -> VocoderContext:
    """The context of a vocoder.

    Args:
        first, last: mel frames and source samples that a frame's first and last sample depend on.
        f0_past, f0_lookahead: mel frames before and after that a frame's source depends on.
    """
    (left_mel, left_source), (right_mel, right_source) = first, last
    source_right = -(-(right_source.last + 1) // hop)
    return VocoderContext(
        left=max(-left_mel.first, -(left_source.first // hop), f0_past),
        right=max(right_mel.last + 1, source_right),
        lookahead=max(right_mel.last + 1, source_right + f0_lookahead),
        f0_past=f0_past,
        f0_lookahead=f0_lookahead,
    )


def _decoder_inputs(
    config: VocoderConfig,
    sample: int,
    conv: Convolution,
    upsampled: Callable[[IndexRange, UpsamplingStage], IndexRange],
    source_edges: Sequence[int],
) -> tuple[IndexRange, IndexRange]:
    """Outputs of the first convolution, and source samples, that one output sample depends on.

    Args:
        conv: of the decoder's kind.
        upsampled: input range of a stage's upsampling.
        source_edges: zeros before the source branch of each stage.
    """

    def resblock(span: IndexRange, kernel: int, dilations: tuple[int, ...]) -> IndexRange:
        for dilation in dilations:
            span = conv(conv(span, kernel, dilation), kernel, 1)
        return span

    size, hop = config.istft_size, config.istft_hop
    span = conv(IndexRange(sample, sample).transposed(size, hop, size // 2), EDGE_KERNEL, 1)
    sources = []
    for index, stage in reversed(list(enumerate(stages(config)))):
        blocks = zip(config.resblock_kernels, config.resblock_dilations, strict=True)
        span = reduce(or_, (resblock(span, *block) for block in blocks))
        source = resblock(span, config.source_kernels[index], config.source_dilations[index])
        source = source.conv(stage.source_kernel, stage.source_stride, source_edges[index])
        sources.append(source.conv(size, hop, size // 2))
        if stage.is_last:
            span = span.conv(1, padding=1)
        span = upsampled(span, stage)
    return span, reduce(or_, sources)


@cache
def context(config: VocoderConfig) -> VocoderContext:
    """Frames that the vocoder's networks read around a frame."""
    found: VocoderContext = load(vocoder_parts(config).context)(config)
    return found
