"""Speaker encoder: an x-vector network (Snyder et al. 2018) trained to tell the training speakers apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from demo_voice.training.data import Corpus, crops
from demo_voice.training.trainer import Losses, optimizer, restore, save, train

WIDTH, DIMENSION = 192, 192
SCALE, MARGIN = 20.0, 0.2
"""Of the additive-margin softmax (arXiv 1801.05599)."""
BATCH, CROP_TOKENS = 128, 50


class SpeakerEncoderNetwork(nn.Module):
    """Fbank in, embedding out: what is exported."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv1d(inputs, WIDTH, kernel, dilation=dilation, padding=dilation * (kernel - 1) // 2)
            for inputs, kernel, dilation in ((80, 5, 1), (WIDTH, 3, 2), (WIDTH, 3, 3), (WIDTH, 1, 1))
        )
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in self.convolutions)
        self.embed = nn.Linear(2 * WIDTH, DIMENSION)

    def forward(self, features: Tensor) -> Tensor:
        """``[B, T, 80]`` to ``[B, 192]``."""
        x = features
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = F.gelu(norm(convolution(x.transpose(1, 2)).transpose(1, 2)))
        mean = x.mean(1)
        spread = ((x - mean[:, None]).square().mean(1) + 1e-5).sqrt()
        return self.embed(torch.cat([mean, spread], -1))


class Training:
    """Random stretches of two seconds, with bands and times masked (SpecAugment, arXiv 1904.08779)."""

    def __init__(self, corpus: Corpus, device: str) -> None:
        self.device = device
        self.fbank = corpus.feature("fbank", device)
        self.ranges = corpus.speaker_ranges()
        self.network = SpeakerEncoderNetwork().to(device)
        self.classes = nn.Linear(DIMENSION, len(corpus.speakers), bias=False).to(device)
        self.optimizer = optimizer([*self.network.parameters(), *self.classes.parameters()], 1e-3, 0.05)

    def step(self) -> Losses:
        """One optimizer step."""
        speaker = torch.randint(len(self.ranges), (BATCH,))
        first, end = self.ranges[speaker].unbind(1)
        start = first + (torch.rand(BATCH) * (end - first - CROP_TOKENS)).long()
        features = crops(self.fbank, start, CROP_TOKENS, 4).float()
        speaker = speaker.to(self.device)
        cosine = F.linear(
            F.normalize(self.network(self._augmented(features))), F.normalize(self.classes.weight)
        )
        margin = MARGIN * F.one_hot(speaker, len(self.ranges))
        loss = F.cross_entropy(SCALE * (cosine - margin), speaker)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return {"loss": loss, "error": (cosine.argmax(-1) != speaker).float().mean()}

    def _augmented(self, features: Tensor) -> Tensor:
        floor = features.amin((1, 2), keepdim=True) + 2 + 5 * torch.rand(BATCH, 1, 1, device=self.device)
        features = torch.logaddexp(features, floor + 0.5 * torch.randn_like(features))
        features = features - features.mean(1, keepdim=True)
        band, width = (torch.randint(0, high, (BATCH, 1), device=self.device) for high in (80, 12))
        bin_number = torch.arange(80, device=self.device)
        masked = (bin_number >= band) & (bin_number < band + width)
        return features.masked_fill(masked[:, None, :], 0.0)


@torch.no_grad()
def embeddings(network: SpeakerEncoderNetwork, corpus: Corpus, device: str) -> Tensor:
    """Embedding of every utterance, computed alone: [U, 192]."""
    fbank = corpus.feature("fbank", device)
    result = torch.zeros(len(corpus), DIMENSION)
    for length in np.unique(corpus.count):
        group = np.flatnonzero(corpus.count == length)
        for rows in np.array_split(group, -(-len(group) // 256)):
            features = crops(fbank, torch.tensor(corpus.start[rows]), int(length), 4)[:, :-2].float()
            result[torch.from_numpy(rows)] = network(features - features.mean(1, keepdim=True)).cpu()
    return result


def trained(kept: Path, device: str) -> SpeakerEncoderNetwork:
    """From the weights that :func:`run` has kept."""
    network = SpeakerEncoderNetwork()
    restore(kept / "speaker_encoder.pt", network=network)
    return network.float().eval().to(device)


def run(corpus: Corpus, device: str, until: float, kept: Path, work: Path) -> None:  # noqa: ARG001
    """Train until the time is over."""
    stage = Training(corpus, device)
    restore(kept / "speaker_encoder.pt", network=stage.network, classes=stage.classes)
    train("speaker_encoder", stage.step, [stage.optimizer], until, kept / "speaker_encoder.log")
    save(kept / "speaker_encoder.pt", network=stage.network, classes=stage.classes)
