"""Speech language model: text and a prompt's speech tokens in, speech tokens out.

A row is one to several utterances of a speaker: ``[sos] [texts] [task] [speech tokens] [eos]``. Whatever
comes before the last utterance is what a zero-shot prompt is at inference.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset
from transformers import Qwen2Config, Qwen2Model

from cosyvoice_runtime.checkpoint.config import SpeechLMConfig
from demo_voice.training.readings import Readings
from demo_voice.training.sizes import CODES, DEMO, PHASES
from demo_voice.training.text_tokenizer import Bpe, encode_all, load_or_train
from demo_voice.training.trainer import Graphed, Losses, optimizer, restore, save, train

IGNORED = -100
ROW_TOKENS = 24_000
"""Positions in a batch."""
LENGTHS = (192, 320, 448, 640)
"""Positions of a row, the same for all rows of a batch."""
BPE_DROPOUT = 0.1
SEGMENTATIONS = 5
"""Different divisions into text tokens prepared for each sentence; the first is the usual one."""
INPUT_NOISE = 0.1
"""Share of speech inputs replaced by random tokens, so that an odd draw doesn't end intelligible speech."""
DROPOUT, RESIDUAL_DROPOUT = 0.15, 0.1
"""Of the inputs, and of what each layer adds."""
ALONE = 0.15
"""Rows of a single utterance: speech without a prompt."""


class PhasedTable(nn.Module):
    """Rows for all speech tokens and stop ids, each the sum of its code's and its phase's row."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.codes = nn.Parameter(0.02 * torch.randn(CODES, width))
        self.phases = nn.Parameter(0.02 * torch.randn(PHASES, width))
        self.stops = nn.Parameter(0.02 * torch.randn(3, width))

    def rows(self) -> Tensor:
        """``[6564, width]``."""
        return torch.cat([(self.phases[:, None] + self.codes).flatten(0, 1), self.stops])

    def parts(self) -> Tensor:
        """What the rows are sums of, codes first: ``[CODES + PHASES + 3, width]``."""
        return torch.cat([self.codes, self.phases, self.stops])


class SpeechLMNetwork(nn.Module):
    """Everything in ``llm.pt``; ids of all three tables in one line: speech, text, control."""

    def __init__(self, config: SpeechLMConfig) -> None:
        super().__init__()
        self.config = config
        self.llm = nn.ModuleDict({"model": Qwen2Model(_qwen2(config))})
        self.llm_embedding = nn.Embedding(2, config.hidden_size)
        nn.init.normal_(self.llm_embedding.weight, std=0.02)
        self.speech_embedding = PhasedTable(config.hidden_size)
        self.llm_decoder = PhasedTable(config.hidden_size)
        self.bias = PhasedTable(1)
        self.dropout = nn.Dropout(DROPOUT)
        for layer in self.llm["model"].layers:
            for last in (layer.self_attn.o_proj, layer.mlp.down_proj):
                last.register_forward_hook(_dropped)

    def forward(self, ids: Tensor) -> Tensor:
        """Hidden states ``[B, T, C]`` of ids ``[B, T]``."""
        text, control = self.llm["model"].embed_tokens.weight, self.llm_embedding.weight
        embedded = F.embedding(ids, torch.cat([self.speech_embedding.rows(), text, control]))
        return self.llm["model"](
            inputs_embeds=self.dropout(embedded),
            attention_mask={"full_attention": None},  # causal, and no look at the values on the host
            use_cache=False,
        ).last_hidden_state

    def logits(self, hidden: Tensor) -> Tensor:
        """``[..., C]`` to ``[..., 6564]``."""
        return F.linear(hidden, self.llm_decoder.rows(), self.bias.rows()[:, 0])

    def scores(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits of codes, phases and stops; those of a token are its code's plus its phase's."""
        scores = F.linear(hidden, self.llm_decoder.parts()).float() + self.bias.parts()[:, 0]
        return scores.split([CODES, PHASES, 3], -1)

    def published(self) -> dict[str, Tensor]:
        """The state dict under the published names."""
        backbone = self.llm["model"].state_dict()
        return {
            **{f"llm.model.model.{name}": tensor for name, tensor in backbone.items()},
            "llm.model.lm_head.weight": backbone["embed_tokens.weight"],
            "llm_embedding.weight": self.llm_embedding.weight,
            "speech_embedding.weight": self.speech_embedding.rows(),
            "llm_decoder.weight": self.llm_decoder.rows(),
            "llm_decoder.bias": self.bias.rows()[:, 0],
        }


def _dropped(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:  # noqa: ARG001
    return F.dropout(output, RESIDUAL_DROPOUT, module.training)


def _qwen2(config: SpeechLMConfig) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=config.text_vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        rope_theta=config.rope_theta,
        rms_norm_eps=config.rms_norm_eps,
        max_position_embeddings=config.max_positions,
        attention_dropout=0.0,
    )


class Rows(IterableDataset[tuple[Tensor, Tensor]]):
    """Endless batches of ids and labels ``[B, T]``."""

    def __init__(self, readings: Readings, bpe: Bpe, segmentations: int) -> None:
        self.config = DEMO.speech_lm
        self.texts = [encode_all(bpe.tokenizer(), readings.texts)]
        dropped = bpe.tokenizer(BPE_DROPOUT)
        self.texts += [encode_all(dropped, readings.texts) for _ in range(segmentations - 1)]
        self.speech = torch.from_numpy(readings.codes).long().split(readings.count.tolist())
        text_sizes = np.array([[len(ids) for ids in texts] for texts in self.texts]).max(0)
        self.sizes = text_sizes + readings.count
        short = self.sizes <= LENGTHS[0] - 2
        numbers = np.unique(readings.speaker)
        self.members = [np.flatnonzero((readings.speaker == number) & short) for number in numbers]
        sizes = np.array([len(members) for members in self.members])
        self.weights = sizes / sizes.sum()

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        worker = torch.utils.data.get_worker_info()
        torch.set_num_threads(1)
        chance = np.random.default_rng([worker.id if worker else 0, torch.initial_seed() % 2**31])
        while True:
            positions = int(chance.choice(LENGTHS))
            rows = [self._row(chance, positions) for _ in range(ROW_TOKENS // positions)]
            ids, labels = zip(*rows, strict=True)
            yield _stacked(ids, positions, 0), _stacked(labels, positions, IGNORED)

    def _row(self, chance: np.random.Generator, positions: int) -> tuple[Tensor, Tensor]:
        config = self.config
        texts, speech = self._utterances(chance, positions - 2)
        control = config.speech_rows + config.text_vocab_size
        heard, text = torch.cat(speech), torch.cat(texts) + config.speech_rows
        phases = CODES * (torch.arange(len(heard)) % PHASES)
        start, task = torch.tensor([control]), torch.tensor([control + 1])
        ids = torch.cat([start, text, task, self._noisy(heard, chance) + phases])
        quiet = torch.full((len(text) + 1,), IGNORED)
        return ids, torch.cat([quiet, heard + phases, torch.tensor([config.eos_id])])

    def _utterances(self, chance: np.random.Generator, room: int) -> tuple[list[Tensor], list[Tensor]]:
        """Texts and codes of as many utterances of a speaker as fit; a few rows stop at the first."""
        members = self.members[chance.choice(len(self.members), p=self.weights)]
        alone = chance.random() < ALONE
        texts: list[Tensor] = []
        speech: list[Tensor] = []
        utterance = int(chance.choice(members[self.sizes[members] <= room]))
        while self.sizes[utterance] <= room and not (alone and speech):
            texts.append(self.texts[chance.integers(len(self.texts))][utterance])
            speech.append(self.speech[utterance])
            room -= len(texts[-1]) + len(speech[-1])
            utterance = int(chance.choice(members))
        return texts, speech

    def _noisy(self, speech: Tensor, chance: np.random.Generator) -> Tensor:
        """Some tokens replaced by tokens of other places in the row."""
        replaced = torch.from_numpy(chance.random(len(speech)) < INPUT_NOISE)
        return torch.where(replaced, speech[torch.from_numpy(chance.permutation(len(speech)))], speech)


def _stacked(rows: tuple[Tensor, ...], length: int, padding: int) -> Tensor:
    return torch.stack([F.pad(row, (0, length - len(row)), value=padding) for row in rows])


class Training:
    """Teacher forcing on the speech tokens."""

    def __init__(self, readings: Readings, validation: Readings, bpe: Bpe, device: str, workers: int) -> None:
        self.device = device
        self.network = SpeechLMNetwork(DEMO.speech_lm).to(device)
        self.optimizer = optimizer(self.network.parameters(), 1.2e-3, 0.1)
        options = {"batch_size": None, "num_workers": workers, "pin_memory": device == "cuda"}
        self.batches = iter(DataLoader(Rows(readings, bpe, SEGMENTATIONS), **options))
        torch.manual_seed(0)  # every piece validates on the same rows
        held_out = iter(Rows(validation, bpe, 1))
        self.held_out = [next(held_out) for _ in range(4)]
        torch.manual_seed(int(time.time()))
        self.graphed = Graphed(self._step, device)
        self.steps = 0
        self.validation = torch.zeros(())

    def step(self) -> Losses:
        """One optimizer step; every 200 steps the loss on held-out utterances as well."""
        if self.steps % 200 == 0:
            self.validation = self._validate()
        self.steps += 1
        return {**self.graphed(*next(self.batches)), "held_out": self.validation}

    def _step(self, ids: Tensor, labels: Tensor) -> Losses:
        loss, accuracy = self._loss(ids, labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        return {"loss": loss.detach(), "accuracy": accuracy}

    def _loss(self, ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy over all tokens, from the scores of the parts that they are made of."""
        with torch.autocast(self.device, torch.bfloat16, cache_enabled=False):
            codes, phases, stops = self.network.scores(self.network(ids))
        counted, stop = labels != IGNORED, labels >= DEMO.speech_lm.speech_tokens
        place = torch.where(counted & ~stop, labels, 0)
        code, phase = place % CODES, place // CODES
        token = _at(codes, code) + _at(phases, phase)
        ending = _at(stops, torch.where(stop, labels - DEMO.speech_lm.speech_tokens, 0))
        speech = codes.logsumexp(-1) + phases.logsumexp(-1)
        everything = torch.logaddexp(speech, stops.logsumexp(-1))
        losses = (everything - torch.where(stop, ending, token)) * counted
        right = (codes.argmax(-1) == code) & counted & ~stop
        return losses.sum() / counted.sum(), right.sum() / (counted & ~stop).sum()

    @torch.no_grad()
    def _validate(self) -> Tensor:
        self.network.eval()
        losses = [self._loss(*(x.to(self.device) for x in batch))[0] for batch in self.held_out]
        self.network.train()
        return torch.stack(losses).mean()


def _at(scores: Tensor, place: Tensor) -> Tensor:
    return scores.gather(-1, place[..., None])[..., 0]


def run(device: str, until: float, kept: Path, workers: int = 3) -> None:
    """Train on all readings that are kept until the time is over."""
    readings = Readings.joined([Readings.load(path) for path in sorted(kept.glob("readings*.npz"))])
    print(f"lm: {len(readings)} readings, {readings.count.sum() / 25 / 3600:.1f} h", flush=True)
    bpe = load_or_train(kept / "bpe.json", readings.texts)
    validation = Readings.load(kept / "validation.npz")
    stage = Training(readings, validation, bpe, device, workers)
    restore(kept / "lm.pt", network=stage.network)
    train("lm", stage.step, [stage.optimizer], until, kept / "lm.log")
    save(kept / "lm.pt", network=stage.network)
