"""How far the output of CosyVoice3's vocoder looks into its inputs."""

from __future__ import annotations

from cosyvoice_runtime.checkpoint.config_vocoder import CausalVocoderConfig
from cosyvoice_runtime.vocoder.geometry import (
    EDGE_KERNEL,
    F0_KERNEL,
    F0_LAYERS,
    IndexRange,
    VocoderContext,
    reaching,
    stages,
)


def causal_context(config: CausalVocoderConfig) -> VocoderContext:
    """Context in whole frames: 28 left, 5 right, 5 ahead (3 for the phase) with the published kernels."""
    f0_past = (F0_LAYERS - 1) * (F0_KERNEL - 1)
    return reaching(_inputs(config, 0), _inputs(config, -1), config.hop, f0_past, config.first_f0_kernel - 1)


def _inputs(config: CausalVocoderConfig, sample: int) -> tuple[IndexRange, IndexRange]:
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
