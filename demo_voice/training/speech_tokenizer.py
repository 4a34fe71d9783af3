"""Speech tokenizer: log-mel at 100 Hz to FSQ codes at 25 Hz (finite scalar quantisation, arXiv 2309.15505).

Trained to make the phones readable (CTC) and the mel and the pitch recoverable by a decoder that knows the
speaker, so that codes hold what is said and how, and as little as possible of who says it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from demo_voice.training.data import Corpus
from demo_voice.training.sizes import CODES, DIGITS, PHASES
from demo_voice.training.trainer import Losses, optimizer, restore, save, train

WIDTH, BLOCKS = 192, 4
LEVELS = 3
MEL_MEAN, MEL_SPREAD = -6.0, 2.5
MAX_TOKENS = 160
BATCH = 96


class ConvBlock(nn.Module):
    """Depthwise convolution over 7 frames and a feed-forward, added to the input (ConvNeXt, 2201.03545)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """``[B, T, C]`` to the same shape."""
        hidden = self.depthwise(x.transpose(1, 2)).transpose(1, 2)
        return x + self.narrow(F.gelu(self.widen(self.norm(hidden))))


class SpeechTokenizerNetwork(nn.Module):
    """What is exported: log-mel in, codes out."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(128, WIDTH, 3, stride=2, padding=1)
        self.second = nn.Conv1d(WIDTH, WIDTH, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(ConvBlock(WIDTH) for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self.digits = nn.Linear(WIDTH, DIGITS)
        nn.init.normal_(self.digits.weight, std=2 * WIDTH**-0.5)  # all three levels in use from the start
        self.register_buffer("powers", LEVELS ** torch.arange(DIGITS), persistent=False)

    def bounded(self, log_mel: Tensor) -> Tensor:
        """``[B, 128, T]`` to ``[B, ceil(T / 4), digits]`` in -1..1, before rounding."""
        x = self.second(F.gelu(self.first(log_mel))).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return torch.tanh(self.digits(self.norm(x)).float())

    def codes(self, bounded: Tensor) -> Tensor:
        """Codes 0 to ``CODES - 1``."""
        return ((bounded.round().int() + 1) * self.powers.int()).sum(-1)

    def forward(self, feats: Tensor, feats_length: Tensor) -> Tensor:
        """The exported graph: int32 tokens ``[B, tokens]``, 0 to 6560, codes and phases."""
        codes = self.codes(self.bounded(feats))
        codes = codes + CODES * (
            torch.arange(codes.shape[1], device=codes.device, dtype=torch.int32) % PHASES
        )
        tokens = torch.div(feats_length + 3, 4, rounding_mode="floor")
        inside = torch.arange(codes.shape[1], device=codes.device)[None, :] < tokens[:, None]
        return torch.where(inside, codes, torch.zeros_like(codes)).int()


class Reader(nn.Module):
    """Training only: what can be read from the codes."""

    def __init__(self, phones: int, speakers: int, width: int = 256) -> None:
        super().__init__()
        self.entry = nn.Linear(DIGITS, width)
        self.phone_blocks = nn.ModuleList(ConvBlock(width) for _ in range(2))
        self.phones = nn.Linear(width, phones + 1)
        self.speakers = nn.Embedding(speakers, width)
        self.mel_blocks = nn.ModuleList(ConvBlock(width) for _ in range(3))
        self.mel = nn.Linear(width, 2 * 80)
        self.pitch = nn.Linear(width, 2 * 2)

    def forward(self, digits: Tensor, speaker: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Phone logits ``[B, T, phones + 1]``, mel ``[B, 2 T, 80]``, voicing and log-F0 ``[B, 2 T, 2]``."""
        hidden = entry = self.entry(digits)
        for block in self.phone_blocks:
            hidden = block(hidden)
        phones = self.phones(hidden)
        hidden = entry + self.speakers(speaker)[:, None]
        for block in self.mel_blocks:
            hidden = block(hidden)
        return (
            phones,
            self.mel(hidden).unflatten(-1, (2, 80)).flatten(1, 2),
            self.pitch(hidden).unflatten(-1, (2, 2)).flatten(1, 2),
        )


class Training:
    """Batches of whole utterances and the loss."""

    def __init__(self, corpus: Corpus, device: str) -> None:
        self.device = device
        self.corpus = corpus
        self.names = sorted({phone for phones in corpus.phones for phone in phones})
        self.log_mel, self.mel = corpus.feature("log_mel", device), corpus.feature("mel", device)
        self.f0 = corpus.feature("f0", device)
        self.targets = self._phone_table()
        self.lengths = torch.tensor([len(phones) for phones in corpus.phones])
        self.usable = np.flatnonzero(corpus.count <= MAX_TOKENS)
        self.network = SpeechTokenizerNetwork().to(device)
        self.reader = Reader(len(self.names), len(corpus.speakers)).to(device)
        self.optimizer = optimizer([*self.network.parameters(), *self.reader.parameters()], 1.5e-3)
        self.chance = np.random.default_rng(0)

    def _phone_table(self) -> Tensor:
        number = {name: place + 1 for place, name in enumerate(self.names)}
        table = torch.zeros(len(self.corpus), max(map(len, self.corpus.phones)), dtype=torch.int64)
        for row, phones in enumerate(self.corpus.phones):
            table[row, : len(phones)] = torch.tensor([number[phone] for phone in phones])
        return table.to(self.device)

    def step(self) -> Losses:
        """One optimizer step."""
        chosen = np.sort(self.chance.choice(self.usable, min(BATCH, len(self.usable)), replace=False))
        count = torch.tensor(self.corpus.count[chosen], device=self.device)
        start = torch.tensor(self.corpus.start[chosen], device=self.device)
        tokens = int(self.corpus.count[chosen].max())
        place = torch.arange(tokens, device=self.device)
        inside = place < count[:, None]
        mel = self._padded(self.mel, start, count, tokens, 2).float()
        log_mel = self._padded(self.log_mel, start, count, tokens, 4).float()
        gain = 0.15 * torch.randn(len(chosen), 1, 1, device=self.device)
        log_mel = log_mel + gain + 0.03 * torch.randn_like(log_mel)
        f0 = self._padded(self.f0[:, None], start, count, tokens, 2)[..., 0].float()
        speaker = torch.tensor(self.corpus.speaker[chosen], device=self.device)
        with torch.autocast(self.device, torch.bfloat16):
            bounded = self.network.bounded(log_mel.transpose(1, 2))
            digits = bounded + (bounded.round() - bounded).detach()
            phones, read_mel, pitch = self.reader(digits, speaker)
        reading = F.ctc_loss(
            phones.float().log_softmax(-1).transpose(0, 1),
            self.targets[torch.from_numpy(chosen)],
            torch.from_numpy(self.corpus.count[chosen]),
            self.lengths[torch.from_numpy(chosen)],
            zero_infinity=True,
        )
        frames = inside.repeat_interleave(2, 1)
        mel_error = (read_mel.float() - (mel - MEL_MEAN) / MEL_SPREAD).abs().mean(-1)[frames].mean()
        voiced, level = pitch.float().unbind(-1)
        is_voiced = f0 > 0
        voicing = F.binary_cross_entropy_with_logits(voiced[frames], is_voiced.float()[frames])
        level_error = (level - (f0.clamp(min=30) / 130).log()).abs()[frames & is_voiced].mean()
        loss = reading + 3 * mel_error + 0.2 * voicing + 0.5 * level_error
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        return {"ctc": reading, "mel": mel_error, "voicing": voicing, "pitch": level_error}

    def _padded(self, flat: Tensor, start: Tensor, count: Tensor, tokens: int, per_token: int) -> Tensor:
        """Utterances of a flat feature, the shorter ones continued by their last frame."""
        place = torch.arange(tokens * per_token, device=self.device)
        place = torch.minimum(place, count[:, None] * per_token - 1)
        return flat[start[:, None] * per_token + place]


@torch.no_grad()
def tokens(network: SpeechTokenizerNetwork, corpus: Corpus, device: str) -> Tensor:
    """Codes of the whole corpus, end to end, without phases: int16."""
    all_log_mel = corpus.feature("log_mel", device)
    flat = torch.zeros(corpus.tokens, dtype=torch.int16)
    for length in np.unique(corpus.count):
        group = np.flatnonzero(corpus.count == length)
        for rows in np.array_split(group, -(-len(group) // 256)):
            place = torch.tensor(corpus.start[rows])[:, None] + torch.arange(int(length))
            frames = place[:, :, None] * 4 + torch.arange(4)
            log_mel = all_log_mel[frames.flatten(1).to(device)].float().transpose(1, 2)
            flat[place] = network.codes(network.bounded(log_mel)).short().cpu()
    return flat


def bits(codes: Tensor) -> float:
    """Entropy of the codes' frequencies."""
    used = torch.bincount(codes.long(), minlength=CODES).float()
    share = used[used > 0] / used.sum()
    return -(share * share.log2()).sum().item()


def trained(kept: Path, device: str) -> SpeechTokenizerNetwork:
    """From the halved weights, which the exported graph holds too."""
    network = SpeechTokenizerNetwork()
    restore(kept / "speech_tokenizer.pt", network=network)
    return network.float().eval().to(device)


def run(corpus: Corpus, device: str, until: float, kept: Path, work: Path) -> None:  # noqa: ARG001
    """Train until the time is over."""
    stage = Training(corpus, device)
    restore(kept / "speech_tokenizer.pt", network=stage.network, reader=stage.reader)
    train("speech_tokenizer", stage.step, [stage.optimizer], until, kept / "speech_tokenizer.log")
    save(kept / "speech_tokenizer.pt", network=stage.network, reader=stage.reader)
