"""Flow: conditional flow matching from tokens, a voice and a prompt's mel to mel (arXiv 2210.02747)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cosyvoice_runtime.flow.torch.flow import FlowNetwork
from cosyvoice_runtime.flow.torch.layers import NoPast
from demo_voice.training.data import Corpus, crops
from demo_voice.training.sizes import CODES, DEMO, PHASES
from demo_voice.training.trainer import Graphed, Losses, optimizer, restore, save, train

BATCH, CROP_TOKENS = 56, 175
UNCONDITIONED = 0.2
"""Rows without any condition, for classifier-free guidance (the published ``training_cfg_rate``)."""
LONGEST_PROMPT = 0.6
"""Of a row; half of the rows have no prompt."""
ENDS = 0.25
"""Batches whose rows end with the crop, without look-ahead."""
MEAN_WEIGHT = 0.3
"""Of the error of the mean mel that encoder and speaker projection add up to; it speeds the start up."""
MEL_MEAN = -6.0


class Training:
    """Crops of the flat corpus: tokens, mel, and another utterance's embedding of the same speaker."""

    def __init__(self, corpus: Corpus, tokens: Tensor, embeddings: Tensor, device: str) -> None:
        self.device = device
        self.mel = corpus.feature("mel", device)
        self.tokens = tokens.to(device)
        self.embeddings = embeddings.to(device)
        self.ranges = corpus.speaker_ranges()
        share = (self.ranges[:, 1] - self.ranges[:, 0]).float()
        self.weights = share / share.sum()
        self.members = [
            torch.from_numpy(np.flatnonzero(corpus.speaker == number)) for number in range(len(share))
        ]
        self.network = FlowNetwork(DEMO.flow).to(device)
        nn.init.constant_(self.network.estimator.projection.bias, MEL_MEAN)
        nn.init.constant_(self.network.encoder_projection.bias, MEL_MEAN)
        nn.init.normal_(self.network.token_embedding.weight, std=0.3)
        self.optimizer = optimizer(self.network.parameters(), 1.2e-3, 0.01)
        self.graphed = Graphed(self._step, device)

    def step(self) -> Losses:
        """One optimizer step."""
        streaming, ending = bool(torch.rand(()) < 0.5), bool(torch.rand(()) < ENDS)
        return self.graphed(*self._choice(), streaming=streaming, ending=ending)

    def _step(self, start: Tensor, other: Tensor, *, streaming: bool, ending: bool) -> Losses:
        mel = crops(self.mel, start, CROP_TOKENS, 2).float()
        tokens = crops(self.tokens, start, CROP_TOKENS + DEMO.flow.lookahead_tokens, 1).long()
        speaker = self.embeddings[other]
        with torch.autocast(self.device, torch.bfloat16, cache_enabled=False), torch.device(self.device):
            mu = self._encode(tokens, streaming, ending)
            voice = self.network.speaker(F.normalize(speaker))
            mean_error = (mu + voice[:, None] - mel).abs().mean()
            error = self._matching(mel, mu, voice, streaming)
        loss = error + MEAN_WEIGHT * mean_error
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        return {"flow": error.detach(), "mean": mean_error.detach()}

    def _choice(self) -> tuple[Tensor, Tensor]:
        """First tokens of the rows, and utterances of the same speakers."""
        ahead = DEMO.flow.lookahead_tokens
        speaker = torch.multinomial(self.weights, BATCH, replacement=True)
        first, end = self.ranges[speaker].unbind(1)
        start = first + (torch.rand(BATCH) * (end - first - CROP_TOKENS - ahead)).long()
        others = torch.stack([self.members[s][torch.randint(len(self.members[s]), ())] for s in speaker])
        return start, others

    def _encode(self, tokens: Tensor, streaming: bool, ending: bool) -> Tensor:
        network, config = self.network, DEMO.flow
        present = torch.ones(tokens.shape, dtype=torch.bool)
        present[:, CROP_TOKENS:] = not ending
        past = NoPast()
        hidden = network.encoder(
            network.token_embedding(tokens),
            present,
            _visible(CROP_TOKENS, config.encoder.chunk_tokens, streaming),
            _visible(2 * CROP_TOKENS, config.estimator.chunk_frames, streaming),
            past,
            past,
        )
        return network.encoder_projection(hidden).float()

    def _matching(self, mel: Tensor, mu: Tensor, voice: Tensor, streaming: bool) -> Tensor:
        """Mean squared error of the velocity at a random time between noise and mel."""
        frames = mel.shape[1]
        time = 1 - torch.cos(torch.rand(BATCH) * torch.pi / 2)
        noise = torch.randn_like(mel)
        mixed = noise + time[:, None, None] * (mel - noise)
        prompt = torch.rand(BATCH) * LONGEST_PROMPT * frames * (torch.rand(BATCH) < 0.5)
        condition = mel * (torch.arange(frames) < prompt[:, None])[..., None]
        kept = (torch.rand(BATCH) >= UNCONDITIONED).float()
        velocity = self.network.estimator(
            mixed,
            mu * kept[:, None, None],
            voice * kept[:, None],
            condition * kept[:, None, None],
            self.network.estimator.time_biases(time),
            _visible(frames, DEMO.flow.estimator.chunk_frames, streaming),
            NoPast(),
        )
        return (velocity.float() - (mel - noise)).square().mean()


def with_phases(network: FlowNetwork) -> FlowNetwork:
    """Give every phase of a code the code's embedding; training uses those of phase 0."""
    table = network.token_embedding.weight
    with torch.no_grad():
        table.copy_(table[:CODES].repeat(PHASES, 1))
    return network


def _visible(length: int, chunk: int, streaming: bool) -> Tensor:
    """Chunk-causal or full attention: bool ``[1, 1, T, T]`` on the default device."""
    number = torch.arange(length) // chunk if streaming else torch.zeros(length)
    return (number[None, :] <= number[:, None])[None, None]


def run(corpus: Corpus, device: str, until: float, kept: Path, work: Path) -> None:
    """Train on the corpus' tokens and embeddings until the time is over."""
    tokens, embeddings = (torch.load(work / f"{x}.pt", weights_only=True) for x in ("tokens", "embeddings"))
    stage = Training(corpus, tokens, embeddings, device)
    restore(kept / "flow.pt", network=stage.network)
    train("flow", stage.step, [stage.optimizer], until, kept / "flow.log")
    save(kept / "flow.pt", network=stage.network)
