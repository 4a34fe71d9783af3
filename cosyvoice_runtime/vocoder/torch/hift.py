"""HiFT: mel to waveform through F0, harmonic source and decoder (HiFTNet, arXiv 2309.09493)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import pi

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.families import load, vocoder_parts
from cosyvoice_runtime.vocoder.geometry import EDGE_KERNEL, F0_KERNEL, F0_LAYERS, UpsamplingStage, stages
from cosyvoice_runtime.vocoder.state import UtteranceNoise
from cosyvoice_runtime.vocoder.torch.source import HarmonicSource, PhaseCarry, Rows, Trim
from cosyvoice_runtime.vocoder.weights import plain_weights

MIN_ENVELOPE = 1e-11
"""Smallest sum of squared windows to divide by, as in torch.istft."""


class Fourier(nn.Module):
    """Centred STFT with a periodic Hann window; its frames are so short that matrix products beat FFTs.

    A spectrum is [B, size + 2, F] float32: real parts, then imaginary parts. A row of n samples has
    n / hop + 1 frames.
    """

    analysis: Tensor
    synthesis: Tensor
    window: Tensor

    def __init__(self, size: int, hop: int) -> None:
        super().__init__()
        self.size, self.hop = size, hop
        window = torch.hann_window(size, dtype=torch.float64)
        angle = 2 * pi / size * torch.outer(torch.arange(size // 2 + 1), torch.arange(size)).double()
        basis = torch.cat([angle.cos(), -angle.sin()]) * window  # [size + 2, size]
        weight = torch.full((size // 2 + 1, 1), 2 / size, dtype=torch.float64)
        weight[[0, -1]] /= 2
        self.register_buffer("analysis", basis.float(), persistent=False)
        self.register_buffer("synthesis", (basis * weight.repeat(2, 1)).T.float(), persistent=False)
        self.register_buffer("window", window.float(), persistent=False)

    def transform(self, signal: Tensor, rows: Rows, per_frame: int) -> Tensor:
        """Spectrum of [B, samples], each row reflected at its ends.

        ``per_frame``: spectral frames to a mel frame.
        """
        edge = self.size // 2
        padded = F.pad(signal[:, None], (edge, edge), mode="reflect").squeeze(1)
        if rows.ragged:
            self._reflect(padded, rows.lengths(per_frame * self.hop, edge))
        spectrum = F.linear(padded.unfold(1, self.size, self.hop), self.analysis).transpose(1, 2)
        return rows.trim(per_frame, 1)(spectrum)

    def invert(self, spectrum: Tensor, rows: Rows, per_frame: int) -> Tensor:
        """Signal [B, hop * (F - 1)] of a spectrum; meaningless beyond each row's end."""
        trim = rows.trim(per_frame, 1)
        batch, _, frames = spectrum.shape
        overlapped = self._overlap(trim(F.linear(spectrum.transpose(1, 2), self.synthesis).transpose(1, 2)))
        ones = spectrum.new_ones(batch if rows.ragged else 1, 1, frames)
        envelope = self._overlap(trim(ones) * self.window.square()[:, None])
        return overlapped / envelope.clamp(min=MIN_ENVELOPE)

    def _reflect(self, padded: Tensor, ends: Tensor) -> None:
        """Write the reflection of each row's last samples after its end."""
        steps = torch.arange(self.size // 2, device=padded.device)
        mirrored = padded.gather(1, ends[:, None] - 2 - steps)
        padded.scatter_(1, ends[:, None] + steps, mirrored)

    def _overlap(self, pieces: Tensor) -> Tensor:
        """Overlap-add of [B, size, F], without the half windows at both ends."""
        samples = self.hop * (pieces.shape[-1] - 1) + self.size
        signal = F.fold(pieces, (1, samples), (1, self.size), stride=(1, self.hop))
        edge = self.size // 2
        return signal[:, 0, 0, edge : samples - edge]


class Snake(nn.Module):
    """x + sin(alpha x)^2 / alpha per channel (arXiv 2006.08195).

    Computed in float32 whatever the signal's type: 1 / alpha leaves the range of float16.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.empty(channels))

    def forward(self, signal: Tensor) -> Tensor:
        alpha = self.alpha[:, None]
        wave = torch.sin(signal * alpha)
        return torch.addcmul(signal.float(), wave, wave / (alpha + 1e-9)).to(signal.dtype)


def centred(channels: int, kernel: int, dilation: int) -> nn.Conv1d:
    """Convolution that keeps the length and sees as many steps on both sides."""
    return nn.Conv1d(channels, channels, kernel, padding=dilation * (kernel - 1) // 2, dilation=dilation)


class ResBlock(nn.Module):
    """Pairs of (Snake, dilated convolution, Snake, convolution), each added to its input; ``conv`` keeps the
    length."""

    def __init__(
        self,
        channels: int,
        kernel: int,
        dilations: tuple[int, ...],
        conv: Callable[[int, int, int], nn.Conv1d] = centred,
    ) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList(conv(channels, kernel, dilation) for dilation in dilations)
        self.convs2 = nn.ModuleList(conv(channels, kernel, 1) for _ in dilations)
        self.activations1 = nn.ModuleList(Snake(channels) for _ in dilations)
        self.activations2 = nn.ModuleList(Snake(channels) for _ in dilations)

    def forward(self, signal: Tensor, trim: Trim) -> Tensor:
        """[B, channels, steps] to the same shape."""
        layers = zip(self.activations1, self.convs1, self.activations2, self.convs2, strict=True)
        for snake1, conv1, snake2, conv2 in layers:
            hidden = trim(conv1(snake1(signal)))
            signal = signal + trim(conv2(snake2(hidden)))
        return signal


class F0Predictor(nn.Module):
    """Convolutions with ELU, then one value a frame.

    Always float64. Phase is the running sum of F0, so that rounding which depends on how an utterance is cut
    into chunks would grow with its length; and float64 is exempt from TF32.
    """

    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        widths = [config.mel_bins] + [config.f0_channels] * F0_LAYERS
        self.condnet = nn.ModuleDict(
            # The published names count the activations in between.
            {
                str(2 * index): self._conv(index, widths[index], widths[index + 1])
                for index in range(F0_LAYERS)
            }
        )
        self.classifier = nn.Linear(config.f0_channels, 1)

    def forward(self, mel: Tensor, rows: Rows) -> Tensor:
        """F0 in Hz, [B, T] float64, of mel [B, bins, T]."""
        trim = rows.trim()
        hidden = trim(mel.double())
        for conv in self.condnet.values():
            hidden = trim(F.elu(conv(hidden)))
        return self.classifier(hidden.transpose(1, 2)).squeeze(-1).abs()

    def _conv(self, index: int, inputs: int, outputs: int) -> FrameConv:  # noqa: ARG002
        return FrameConv(inputs, outputs, F0_KERNEL, ahead=F0_KERNEL // 2)


class FrameConv(nn.Conv1d):
    """Length-keeping convolution as one matrix product: convolution libraries treat float64 badly.

    Args:
        ahead: of the kernel's frames, those after the one that is written.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, ahead: int) -> None:
        super().__init__(inputs, outputs, kernel)
        self._edges = (kernel - 1 - ahead, ahead)

    def forward(self, signal: Tensor) -> Tensor:
        """[B, inputs, T] to [B, outputs, T]."""
        windows = F.pad(signal, self._edges).unfold(2, self.kernel_size[0], 1)  # [B, inputs, T, kernel]
        return F.linear(windows.transpose(1, 2).flatten(2), self.weight.flatten(1), self.bias).transpose(1, 2)


HEAD_SLOPE = 0.01
"""Slope before the last convolution: torch's default, not the configured one."""

MAX_MAGNITUDE = 100.0
"""Cap on the spectral magnitude that the head can ask for."""


class Decoder(nn.Module):
    """Upsampling stages, each fed by the source's spectrum, and an inverse STFT as the last stage."""

    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        self.config = config
        self.stages = stages(config)
        self.spectral_rate = config.hop // config.istft_hop
        self.fourier = Fourier(config.istft_size, config.istft_hop)
        self.conv_pre = self._first_conv(config.mel_bins, config.base_channels)
        self.ups = nn.ModuleList(self._upsampling(stage) for stage in self.stages)
        self.source_downs = nn.ModuleList(
            self._source_conv(stage, config.istft_size + 2) for stage in self.stages
        )
        self.source_resblocks = nn.ModuleList(
            self._resblock(stage.channels, kernel, dilations)
            for stage, kernel, dilations in zip(
                self.stages, config.source_kernels, config.source_dilations, strict=True
            )
        )
        self.resblocks = nn.ModuleList(
            self._resblock(stage.channels, kernel, dilations)
            for stage in self.stages
            for kernel, dilations in zip(config.resblock_kernels, config.resblock_dilations, strict=True)
        )
        self.conv_post = self._last_conv(self.stages[-1].channels, config.istft_size + 2)

    def forward(self, mel: Tensor, source: Tensor, rows: Rows) -> Tensor:
        """Waveform [B, hop * T] float32 of mel [B, bins, T] and source [B, hop * T] float32."""
        dtype = self.conv_pre.weight.dtype
        trim = rows.trim()
        spectrum = self.fourier.transform(source, rows, self.spectral_rate).to(dtype)
        hidden = trim(self.conv_pre(trim(mel.to(dtype, copy=True))))
        for index in range(len(self.stages)):
            hidden = self._stage(index, hidden, spectrum, rows)
        hidden = F.leaky_relu(hidden.to(self.conv_post.weight.dtype), HEAD_SLOPE)
        return self.waveform(self.conv_post(hidden).float(), rows)

    def waveform(self, head: Tensor, rows: Rows) -> Tensor:
        """[B, hop * T] of what the last convolution gives, [B, size + 2, steps] float32."""
        wave = self.fourier.invert(_polar(head), rows, self.spectral_rate)
        return wave.clamp(-self.config.audio_limit, self.config.audio_limit)

    def _stage(self, index: int, hidden: Tensor, spectrum: Tensor, rows: Rows) -> Tensor:
        stage = self.stages[index]
        hidden = self.ups[index](F.leaky_relu(hidden, self.config.leaky_slope))
        if stage.is_last:
            hidden = F.pad(hidden, (1, 0), mode="reflect")
        trim = rows.trim(stage.steps_per_frame, int(stage.is_last))
        source = self.source_resblocks[index](trim(self.source_downs[index](spectrum)), trim)
        hidden = trim(hidden) + source
        kernels = len(self.config.resblock_kernels)
        blocks = self.resblocks[index * kernels : (index + 1) * kernels]
        return torch.stack([block(hidden, trim) for block in blocks]).mean(0)

    def _first_conv(self, inputs: int, outputs: int) -> nn.Conv1d:
        return nn.Conv1d(inputs, outputs, EDGE_KERNEL, padding=EDGE_KERNEL // 2)

    def _upsampling(self, stage: UpsamplingStage) -> nn.Module:
        return nn.ConvTranspose1d(2 * stage.channels, stage.channels, stage.kernel, stage.rate, stage.padding)

    def _source_conv(self, stage: UpsamplingStage, inputs: int) -> nn.Conv1d:
        return nn.Conv1d(
            inputs, stage.channels, stage.source_kernel, stage.source_stride, stage.source_padding
        )

    def _resblock(self, channels: int, kernel: int, dilations: tuple[int, ...]) -> ResBlock:
        return ResBlock(channels, kernel, dilations)

    def _last_conv(self, inputs: int, outputs: int) -> nn.Conv1d:
        return nn.Conv1d(inputs, outputs, EDGE_KERNEL, padding=EDGE_KERNEL // 2)


def _polar(head: Tensor) -> Tensor:
    """Real and imaginary parts of log magnitude and (sine-warped) phase, stacked on axis 1."""
    log_magnitude, phase = head.chunk(2, dim=1)
    magnitude = log_magnitude.exp().clamp(max=MAX_MAGNITUDE)
    phase = phase.sin()
    return torch.cat([magnitude * phase.cos(), magnitude * phase.sin()], dim=1)


def networks(config: VocoderConfig) -> tuple[F0Predictor, HarmonicSource, Decoder]:
    """F0 predictor, source and decoder of convolutions that see both sides."""
    return F0Predictor(config), HarmonicSource(config), Decoder(config)


class HiFT(nn.Module):
    """The vocoder's networks. F0 and phase are float64, the source float32; the decoder has its own type."""

    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        self.config = config
        self.fused = False
        """Whether fused kernels have taken the decoder's place."""
        self.f0_predictor, self.m_source, self.decoder = load(vocoder_parts(config).networks)(config)

    @classmethod
    def from_tensors(
        cls,
        config: VocoderConfig,
        tensors: Mapping[str, Tensor],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        decoder: nn.Module | None = None,
    ) -> HiFT:
        """Build from tensors under their published names.

        Args:
            dtype: type of the decoder's convolutions but the last, whose phases and log magnitudes half
                precision would spoil: it is float32, or float64 with all others.
            decoder: called in place of the network's own, whose weights are then not kept.

        Raises:
            CheckpointError: a tensor is missing, unknown, or of another shape or type.
        """
        hift = cls(config)
        weights = plain_weights(config, tensors)
        hift.load_state_dict({name: torch.tensor(array) for name, array in weights.items()}, assign=True)
        hift.f0_predictor.double()
        for module in hift.decoder.modules():
            if isinstance(module, nn.Conv1d | nn.ConvTranspose1d):
                is_last = module is hift.decoder.conv_post
                module.to(torch.promote_types(dtype, torch.float32) if is_last else dtype)
        if decoder is not None:
            hift.add_module("decoder", decoder)
        return hift.requires_grad_(False).eval().to(device)

    def fuse(self, decoder: nn.Module) -> None:
        """Let fused kernels take the decoder's place."""
        self.add_module("decoder", decoder)
        self.fused = True

    @property
    def device(self) -> torch.device:
        return self.m_source.offsets.device

    @torch.no_grad()
    def forward(self, mel: Tensor, noise: Tensor | None = None) -> Tensor:
        """Vocode whole utterances of equal length.

        Args:
            mel: [B, bins, T], 50 Hz.
            noise: [B, hop * T] of :meth:`utterance_noise`, or None for a source without noise.

        Returns:
            [B, hop * T] float32 waveform within the configured limit.
        """
        return self.decode(mel, self.source(self.f0(mel), noise))

    def utterance_noise(self, seed: int) -> UtteranceNoise:
        return self.m_source.utterance_noise(seed)

    @torch.no_grad()
    def f0(self, mel: Tensor) -> Tensor:
        """F0 in Hz, [B, T] float64, of mel [B, bins, T]."""
        return self.f0_predictor(mel, self._rows(mel))

    @torch.no_grad()
    def source(self, f0: Tensor, noise: Tensor | None = None, carry: PhaseCarry | None = None) -> Tensor:
        """Source [B, hop * T] float32 of F0 [B, T], starting at phase 0 or at what is carried."""
        source: Tensor = self.m_source(f0, noise, self._rows(f0), carry)[0]
        return source

    @torch.no_grad()
    def decode(self, mel: Tensor, source: Tensor) -> Tensor:
        """Waveform [B, hop * T] of mel [B, bins, T] and source [B, hop * T]."""
        return self.decoder(mel, source, self._rows(mel))

    def _rows(self, signal: Tensor) -> Rows:
        return Rows.of([signal.shape[-1]] * signal.shape[0], signal.device)
