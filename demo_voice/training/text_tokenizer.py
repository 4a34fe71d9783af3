"""Byte-level BPE of the training text, in the files of the published ``CosyVoice-BlankEN`` directory."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from cosyvoice_runtime.checkpoint.config import SpeechLMConfig
from cosyvoice_runtime.checkpoint.merged_vocabulary import special_token_ids
from demo_voice.training.sizes import TEXT_VOCABULARY
from making.architecture import qwen2_json
from making.tokenizer_files import WORDS, _tokenizer_config


@dataclass(frozen=True)
class Bpe:
    """Vocabulary and merges."""

    vocabulary: dict[str, int]
    merges: list[tuple[str, str]]

    @classmethod
    def trained(cls, texts: Iterable[str]) -> Bpe:
        """Merge the most frequent pairs of the texts."""
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = _words()
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        trainer = trainers.BpeTrainer(
            vocab_size=TEXT_VOCABULARY, initial_alphabet=alphabet, show_progress=False
        )
        tokenizer.train_from_iterator(texts, trainer)
        model = json.loads(tokenizer.to_str())["model"]
        return cls(model["vocab"], [(left, right) for left, right in model["merges"]])

    def tokenizer(self, dropout: float | None = None) -> Tokenizer:
        """An encoder; with ``dropout`` it skips merges at random (arXiv 1910.13267)."""
        tokenizer = Tokenizer(models.BPE(self.vocabulary, self.merges, dropout=dropout))
        tokenizer.pre_tokenizer = _words()
        return tokenizer

    def write(self, directory: Path, config: SpeechLMConfig) -> None:
        """vocab.json, merges.txt, tokenizer_config.json and the Qwen2 config.json."""
        directory.mkdir(parents=True, exist_ok=True)
        lines = ["#version: 0.2", *(" ".join(pair) for pair in self.merges), ""]
        (directory / "merges.txt").write_text("\n".join(lines), encoding="utf-8")
        ids = special_token_ids(len(self.vocabulary))
        for name, content in (
            ("vocab.json", self.vocabulary),
            ("tokenizer_config.json", _tokenizer_config(len(self.vocabulary))),
            ("config.json", qwen2_json(config, ids)),
        ):
            text = json.dumps(content, ensure_ascii=False, indent=1)
            (directory / name).write_text(text, encoding="utf-8")


def _words() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def load_or_train(path: Path, texts: Iterable[str]) -> Bpe:
    """The BPE in ``path``, trained on the texts the first time."""
    if not path.exists():
        bpe = Bpe.trained(texts)
        path.write_text(json.dumps([bpe.vocabulary, bpe.merges]), encoding="utf-8")
    vocabulary, merges = json.loads(path.read_text(encoding="utf-8"))
    return Bpe(vocabulary, [(left, right) for left, right in merges])


def encode_all(tokenizer: Tokenizer, texts: list[str]) -> list[torch.Tensor]:
    """Ids of each text, int64."""
    return [torch.tensor(encoding.ids) for encoding in tokenizer.encode_batch(texts)]
