"""Vocoder: HiFT on recorded mel, first by spectral distances alone, then with critics."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyvoice_runtime.audio.mel import slaney_filters
from cosyvoice_runtime.vocoder.torch.hift import HiFT, Snake
from cosyvoice_runtime.vocoder.torch.source import Rows
from demo_voice.training.data import Corpus, crops
from demo_voice.training.discriminators import Critics, critics_loss, deception_loss, likeness_loss
from demo_voice.training.sizes import DEMO
from demo_voice.training.trainer import Graphed, Losses, optimizer, restore, save, train

BATCH, CROP_TOKENS = 32, 20
RESOLUTIONS = ((256, 64), (512, 128), (1024, 256), (2048, 512))
MAGNITUDE_FLOOR = 2e-3
CRITICS_FROM = 3000
"""Steps before the critics join in; in later pieces they are there from the start."""


class Training:
    """Crops of 0.8 s."""

    def __init__(self, corpus: Corpus, device: str) -> None:
        self.device = device
        self.wave = corpus.feature("wave", device)
        self.mel = corpus.feature("mel", device)
        self.f0 = corpus.feature("f0", device)
        self.hift = initialised(HiFT(DEMO.vocoder)).to(device)
        self.hift.f0_predictor.double()
        self.critics = Critics().to(device)
        self.generator = optimizer([*self.hift.m_source.parameters(), *self.hift.decoder.parameters()], 6e-4)
        self.pitch = optimizer(self.hift.f0_predictor.parameters(), 1e-3)
        self.judge = optimizer(self.critics.parameters(), 4e-4)
        self.rows = Rows.of([2 * CROP_TOKENS] * BATCH, torch.device(device))
        self.windows = {size: torch.hann_window(size, device=device) for size, _ in RESOLUTIONS}
        self.filters = torch.from_numpy(slaney_filters(24_000, 1024, 80, 12_000.0)).to(device)
        self.steps = 0
        self.graphed = Graphed(self._step, device)

    def step(self) -> Losses:
        """One step of F0 predictor and generator, and of the critics once they have joined."""
        self.steps += 1
        start = torch.randint(len(self.f0) // 2 - CROP_TOKENS, (BATCH,))
        return self.graphed(start, judged=self.steps > CRITICS_FROM)

    def _step(self, start: Tensor, *, judged: bool) -> Losses:
        wave, mel, f0 = self._batch(start)
        pitch = self._pitch_step(mel, f0)
        source = self.hift.m_source(f0.double(), torch.randn_like(wave), self.rows)[0]
        made = self.hift.decoder(mel, source, self.rows)
        spectral = self._spectral(made, wave)
        losses = {"pitch": pitch, "spectral": spectral}
        loss = spectral
        if judged:
            # Its cache would keep the critics' weights of before their step.
            with torch.autocast(self.device, torch.bfloat16, cache_enabled=False):
                losses["critics"] = self._judge_step(wave, made.detach())
                verdict, real = self.critics(made), self._judged(wave)
                losses["deception"], losses["likeness"] = (
                    deception_loss(verdict),
                    likeness_loss(real, verdict),
                )
            loss = spectral + 0.3 * losses["deception"] + 0.6 * losses["likeness"]
        _descend(self.generator, loss)
        return {name: value.detach() for name, value in losses.items()}

    def _batch(self, start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Waveform ``[B, n]``, mel ``[B, 80, T]`` and F0 ``[B, T]``."""
        wave = crops(self.wave, start, CROP_TOKENS, 960).float() / 32767
        mel = crops(self.mel, start, CROP_TOKENS, 2).float().transpose(1, 2)
        return wave, mel, crops(self.f0, start, CROP_TOKENS, 2).float()

    def _pitch_step(self, mel: Tensor, f0: Tensor) -> Tensor:
        predicted = self.hift.f0_predictor(mel, self.rows).float()
        loss = F.smooth_l1_loss(predicted / 50, f0 / 50)
        _descend(self.pitch, loss)
        return loss.detach()

    @torch.no_grad()
    def _judged(self, wave: Tensor) -> list[list[Tensor]]:
        return self.critics(wave)

    def _judge_step(self, wave: Tensor, made: Tensor) -> Tensor:
        loss = critics_loss(self.critics(wave), self.critics(made))
        _descend(self.judge, loss)
        return loss.detach()

    def _spectral(self, made: Tensor, wave: Tensor) -> Tensor:
        """Log magnitudes and magnitudes at several resolutions, and log-mel."""
        losses = []
        for size, hop in RESOLUTIONS:
            ours, theirs = (self._magnitude(x, size, hop) for x in (made, wave))
            losses.append(_log(ours).sub(_log(theirs)).abs().mean())
            losses.append((ours - theirs).norm() / theirs.norm().clamp(min=1e-3))
            if size == 1024:
                mels = (_log(self.filters @ x) for x in (ours, theirs))
                losses.append(3 * F.l1_loss(*mels))
        return torch.stack(losses).sum() / len(RESOLUTIONS)

    def _magnitude(self, wave: Tensor, size: int, hop: int) -> Tensor:
        spectrum = torch.stft(wave, size, hop, window=self.windows[size], return_complex=True)
        return (torch.view_as_real(spectrum).square().sum(-1) + 1e-8).sqrt()


def initialised(hift: HiFT) -> HiFT:
    """Snake frequencies of one, and a head that begins quietly."""
    for module in hift.modules():
        if isinstance(module, Snake):
            nn.init.ones_(module.alpha)
    nn.init.constant_(hift.decoder.conv_post.bias, 0.0)
    nn.init.constant_(hift.decoder.conv_post.bias[: DEMO.vocoder.istft_size // 2 + 1], -3.0)
    nn.init.constant_(hift.f0_predictor.classifier.bias, 80.0)
    return hift


def _log(magnitude: Tensor) -> Tensor:
    return magnitude.clamp(min=MAGNITUDE_FLOOR).log()


def _descend(chosen: torch.optim.Optimizer, loss: Tensor) -> None:
    chosen.zero_grad(set_to_none=True)
    loss.backward()
    parameters = [parameter for group in chosen.param_groups for parameter in group["params"]]
    nn.utils.clip_grad_norm_(parameters, 10.0)
    chosen.step()


def run(corpus: Corpus, device: str, until: float, kept: Path, work: Path) -> None:  # noqa: ARG001
    """Train until the time is over."""
    stage = Training(corpus, device)
    if restore(kept / "vocoder.pt", hift=stage.hift, critics=stage.critics):
        stage.steps = CRITICS_FROM
    train("vocoder", stage.step, [stage.generator, stage.pitch, stage.judge], until, kept / "vocoder.log")
    save(kept / "vocoder.pt", hift=stage.hift, critics=stage.critics)
