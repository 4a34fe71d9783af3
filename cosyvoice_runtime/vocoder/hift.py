"""HiFT: mel to waveform through F0, harmonic source and decoder (HiFTNet, arXiv 2309.09493)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.vocoder.decoder import Decoder
from cosyvoice_runtime.vocoder.f0 import F0Predictor
from cosyvoice_runtime.vocoder.rows import Rows
from cosyvoice_runtime.vocoder.source import HarmonicSource
from cosyvoice_runtime.vocoder.weights import plain_weights


class HiFT(nn.Module):
    """The vocoder's networks. F0 and phase are float64, the source float32; the decoder has its own type."""

    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        self.config = config
        self.f0_predictor = F0Predictor(config)
        self.m_source = HarmonicSource(config)
        self.decoder = Decoder(config)

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
            dtype: type of the decoder's convolutions.
            decoder: called in place of the network's own, whose weights are then not kept.

        Raises:
            CheckpointError: a tensor is missing, unknown, or of another shape or type.
        """
        hift = cls(config)
        hift.load_state_dict(plain_weights(config, tensors), assign=True)
        hift.f0_predictor.double()
        for module in hift.decoder.modules():
            if isinstance(module, nn.Conv1d | nn.ConvTranspose1d):
                module.to(dtype)
        if decoder is not None:
            hift.add_module("decoder", decoder)
        return hift.requires_grad_(False).eval().to(device)

    @property
    def device(self) -> torch.device:
        return self.m_source.offsets.device

    @torch.no_grad()
    def forward(self, mel: Tensor, noise: Tensor | None = None) -> Tensor:
        """Vocode whole utterances of equal length.

        Args:
            mel: [B, bins, T], 50 Hz.
            noise: [B, hop * T] standard normal (``SourceNoise``), or None for a source without noise.

        Returns:
            [B, hop * T] float32 waveform within the configured limit.
        """
        return self.decode(mel, self.source(self.f0(mel), noise))

    @torch.no_grad()
    def f0(self, mel: Tensor) -> Tensor:
        """F0 in Hz, [B, T] float64, of mel [B, bins, T]."""
        return self.f0_predictor(mel, self._rows(mel))

    @torch.no_grad()
    def source(self, f0: Tensor, noise: Tensor | None = None) -> Tensor:
        """Source [B, hop * T] float32 of F0 [B, T], starting at phase 0."""
        source: Tensor = self.m_source(f0, noise, self._rows(f0))[0]
        return source

    @torch.no_grad()
    def decode(self, mel: Tensor, source: Tensor) -> Tensor:
        """Waveform [B, hop * T] of mel [B, bins, T] and source [B, hop * T]."""
        return self.decoder(mel, source, self._rows(mel))

    def _rows(self, signal: Tensor) -> Rows:
        return Rows.of([signal.shape[-1]] * signal.shape[0], signal.device)
