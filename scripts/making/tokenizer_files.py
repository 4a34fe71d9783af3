"""A small byte-level BPE tokenizer in the files of the published ``CosyVoice-BlankEN`` directory."""

from __future__ import annotations

import json
from operator import itemgetter
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from cosyvoice_runtime.checkpoint.merged_vocabulary import special_token_ids
from cosyvoice_runtime.families.tokens import QWEN2_TOKENS
from cosyvoice_runtime.families.whisper_tokens import byte_signs, write_ranks

WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen2 cuts text into words before it merges bytes (``pre_tokenizer`` of its tokenizer.json)."""
VOCABULARY_SIZE = 1000

SENTENCES = (
    "The birch canoe slid on the smooth planks, and the boat went down the river to the sea.",
    "Good morning! How are you today? I hope that everything is going well with you and your friends.",
    "She said that the weather would be fine, but it has been raining since this morning.",
    "There is nothing that he would rather do than read a good book in the evening.",
    "Please call me when you get home; we have to talk about the plans for the weekend.",
    "The quick brown fox jumps over the lazy dog while the children are watching from the window.",
    "Text to speech turns written words into a voice that people can listen to.",
    "It was the first time that they had seen so many stars in the night sky.",
    "We will need about twenty minutes to walk from the station to the other side of the town.",
    "What would happen if the train did not stop here? Nobody could tell me.",
    "Some of the most interesting stories were told by the old man at the end of the street.",
    "Thank you for calling. Your request has been received and will be answered shortly.",
    "Speak with a happy voice. Speak slowly. Say it in a sad and quiet way.",
    "Zero, one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, one hundred.",
    "收到好友从远方寄来的生日礼物，那份意外的惊喜与深深的祝福让我心中充满了甜蜜的快乐，笑容如花儿般绽放。",
    "今天天气很好，我们一起去公园散步吧。你想吃什么？我想吃一点水果。",
    "他说他明天早上要坐火车去北京，大概需要五个小时才能到。",
    "语音合成可以把文字变成声音，让人们更方便地听到自己想要的内容。",
    "请用开心的语气说这句话。请说得慢一点，声音小一点。",
    "这个地方的人很多，孩子们在河边玩，老人们在树下说话。",
    "一二三四五六七八九十，百千万亿，零点五，百分之二十。",
    "在很久以前，有一个小村子，村子里的人每天都很早起来工作。",
    "如果你有什么问题，可以随时打电话给我，我们会尽快回答。",
    "我不知道他们为什么没有来，也许是因为下雨了，路上不太好走。",
    "中国的历史很长，文化也非常丰富，每年都有许多人来这里学习。",
    "希望你以后能够做得比我还好哟。",
)
"""Everyday words of both languages, so that common ones become single tokens."""


def write_tokenizer(directory: Path) -> int:
    """Write vocab.json, merges.txt and tokenizer_config.json; returns the entries in vocab.json."""
    model = json.loads(_trained().to_str())["model"]
    vocabulary: dict[str, int] = model["vocab"]
    merges = [" ".join(pair) for pair in model["merges"]]
    _write_json(directory / "vocab.json", vocabulary)
    (directory / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
    _write_json(directory / "tokenizer_config.json", _tokenizer_config(len(vocabulary)))
    return len(vocabulary)


def write_ranks_file(path: Path) -> int:
    """Write the same vocabulary in tiktoken's form; returns its entries."""
    vocabulary: dict[str, int] = json.loads(_trained().to_str())["model"]["vocab"]
    values = {sign: byte for byte, sign in enumerate(byte_signs())}
    ranks = {bytes(values[sign] for sign in token): rank for token, rank in vocabulary.items()}
    write_ranks(path, dict(sorted(ranks.items(), key=itemgetter(1))))
    return len(ranks)


def _trained() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer


def _tokenizer_config(vocabulary_size: int) -> dict[str, object]:
    ids = special_token_ids(vocabulary_size)
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return {
        "add_prefix_space": False,
        "added_tokens_decoder": {str(ids[token]): {"content": token, **flags} for token in QWEN2_TOKENS},
        "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 32768,
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "Qwen2Tokenizer",
    }


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
