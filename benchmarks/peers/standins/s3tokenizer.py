"""Stands in for the package ``s3tokenizer``, whose weights can't be made: tokens of a made ONNX file.

vllm-omni encodes a voice's reference with that package once, when the voice is first spoken with. The
variable ``S3TOKENIZER_ONNX`` names the ``speech_tokenizer_v3.onnx`` of the checkpoint that is served.
"""

from __future__ import annotations

import os

import numpy as np
import onnxruntime
import torch
from transformers.audio_utils import mel_filter_bank

RATE, WINDOW, HOP, MELS = 16_000, 400, 160, 128
"""Whisper's log-mel spectrogram, which the tokenizer takes: samples a second, samples, samples, bins."""


class Tokenizer:
    """Speech tokens of log-mels, on the CPU wherever it is sent."""

    def __init__(self, path: str) -> None:
        self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def to(self, device: object) -> Tokenizer:  # noqa: ARG002
        return self

    def eval(self) -> Tokenizer:
        return self

    def quantize(self, mels: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mels [B, 128, T] float32 and their lengths [B]: tokens [B, T / 4] and their number [B], int32."""
        feeds = {"feats": mels.cpu().numpy(), "feats_length": lengths.cpu().numpy().astype(np.int32)}
        tokens = torch.from_numpy(self._session.run(None, feeds)[0].astype(np.int32))
        return tokens, torch.full((len(tokens),), tokens.shape[1], dtype=torch.int32)


def load_model(name: str) -> Tokenizer:  # noqa: ARG001
    return Tokenizer(os.environ["S3TOKENIZER_ONNX"])


def log_mel_spectrogram(audio: torch.Tensor) -> torch.Tensor:
    """Whisper's log-mel [128, T] of samples at 16 kHz."""
    spectrum = torch.stft(audio, WINDOW, HOP, window=torch.hann_window(WINDOW), return_complex=True)
    filters = mel_filter_bank(1 + WINDOW // 2, MELS, 0.0, RATE / 2, RATE, norm="slaney", mel_scale="slaney")
    power = spectrum[:, :-1].abs().square()
    mels = torch.from_numpy(filters.T).to(power) @ power
    logs = mels.clamp(min=1e-10).log10()
    return (torch.maximum(logs, logs.max() - 8.0) + 4.0) / 4.0


def padding(mels: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """One batch of them with zeros after the shorter ones, and their lengths."""
    lengths = torch.tensor([mel.shape[1] for mel in mels])
    rows = [torch.nn.functional.pad(mel, (0, int(lengths.max()) - mel.shape[1])) for mel in mels]
    return torch.stack(rows), lengths
