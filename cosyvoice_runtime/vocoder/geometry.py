"""Shapes of the decoder's stages and how far its output looks into its inputs.

Every layer of HiFT is a convolution or a transposed convolution along time (the STFT and its inverse
included), so the context an output sample needs follows from the configuration alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod

from cosyvoice_runtime.checkpoint.config_vocoder import CausalVocoderConfig, VocoderConfig
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
    """Upsampling stages in order.

    Raises:
        CheckpointError: a kernel and rate whose transposed convolution can't multiply the length exactly.
    """
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

    def resblock(self, kernel: int, dilations: tuple[int, ...]) -> IndexRange:
        """Input range of a residual block that writes this range."""
        span = self
        for dilation in dilations:
            span = span.same(kernel, dilation).same(kernel)
        return span

    def back(self, kernel: int, dilation: int = 1) -> IndexRange:
        """Input range of a convolution that keeps the length and looks back only."""
        return IndexRange(self.first - dilation * (kernel - 1), self.last)

    def ahead(self, kernel: int) -> IndexRange:
        """Input range of a convolution that keeps the length and looks ahead only."""
        return IndexRange(self.first, self.last + kernel - 1)

    def resblock_back(self, kernel: int, dilations: tuple[int, ...]) -> IndexRange:
        """As :meth:`resblock`, of convolutions that look back only."""
        span = self
        for dilation in dilations:
            span = span.back(kernel, dilation).back(kernel)
        return span

    def repeated(self, rate: int) -> IndexRange:
        """Input range of repeating each step ``rate`` times."""
        return IndexRange(self.first // rate, self.last // rate)

    def __or__(self, other: IndexRange) -> IndexRange:
        return IndexRange(min(self.first, other.first), max(self.last, other.last))


def centred_context(config: VocoderConfig) -> VocoderContext:
    """Context in whole frames: 15 left, 15 right, 21 ahead (6 for the phase) with the published kernels."""
    radius = F0_LAYERS * (F0_KERNEL // 2)
    # The phase between two frame centres is interpolated: a source frame reads the next frame's F0 as well.
    return reaching(_inputs(config, 0), _inputs(config, -1), config.hop, radius, 1 + radius)


def reaching(
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


def _inputs(config: VocoderConfig, sample: int) -> tuple[IndexRange, IndexRange]:
    """Mel frames and source samples that one output sample depends on."""
    size, hop = config.istft_size, config.istft_hop
    span = IndexRange(sample, sample).transposed(size, hop, size // 2).same(EDGE_KERNEL)
    sources = []
    for index, stage in reversed(list(enumerate(stages(config)))):
        span = _residual_mean(config, span)
        source = span.resblock(config.source_kernels[index], config.source_dilations[index])
        source = source.conv(stage.source_kernel, stage.source_stride, stage.source_padding)
        sources.append(source.conv(size, hop, size // 2))
        if stage.is_last:
            span = span.conv(1, padding=1)
        span = span.transposed(stage.kernel, stage.rate, stage.padding)
    widest = sources[0]
    for source in sources[1:]:
        widest |= source
    return span.same(EDGE_KERNEL), widest


def _residual_mean(config: VocoderConfig, span: IndexRange) -> IndexRange:
    widest = span
    for kernel, dilations in zip(config.resblock_kernels, config.resblock_dilations, strict=True):
        widest |= span.resblock(kernel, dilations)
    return widest


def causal_context(config: CausalVocoderConfig) -> VocoderContext:
    """Context in whole frames: 28 left, 5 right, 5 ahead (3 for the phase) with the published kernels."""
    f0_past = (F0_LAYERS - 1) * (F0_KERNEL - 1)
    return reaching(
        _causal_inputs(config, 0), _causal_inputs(config, -1), config.hop, f0_past, config.first_f0_kernel - 1
    )


def _causal_inputs(config: CausalVocoderConfig, sample: int) -> tuple[IndexRange, IndexRange]:
    """Mel frames and source samples that one output sample depends on."""
    size, hop = config.istft_size, config.istft_hop
    span = IndexRange(sample, sample).transposed(size, hop, size // 2).back(EDGE_KERNEL)
    sources = []
    for index, stage in reversed(list(enumerate(stages(config)))):
        blocks = zip(config.resblock_kernels, config.resblock_dilations, strict=True)
        span = min((span.resblock_back(*block) for block in blocks), key=lambda block: block.first)
        source = span.resblock_back(config.source_kernels[index], config.source_dilations[index])
        source = source.conv(stage.source_kernel, stage.source_stride, stage.source_stride - 1)
        sources.append(source.conv(size, hop, size // 2))
        if stage.is_last:
            span = span.conv(1, padding=1)
        span = span.back(stage.kernel).repeated(stage.rate)
    widest = IndexRange(min(source.first for source in sources), max(source.last for source in sources))
    return span.ahead(config.first_kernel), widest


@cache
def context(config: VocoderConfig) -> VocoderContext:
    """Frames that the vocoder's networks read around a frame."""
    found: VocoderContext = load(vocoder_parts(config).context)(config)
    return found
