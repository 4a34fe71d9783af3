"""Manifests and data sets."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cosyvoice_client import Reference
from measuring.workload import WorkloadError, built_in, instructed, read_manifest, read_split

INSTRUCTION = "Be brief.<|endofprompt|>"


def test_manifest_lines_become_utterances(tmp_path):
    (tmp_path / "set.txt").write_text(
        "one.wav|你好|prompts/a.wav|今天天气很好。\n\n"
        "/x/two|words|/abs/b.wav|Hello there.\n"
        "three|||No voice.\n"
    )
    one, two, three = read_manifest(tmp_path / "set.txt")
    assert (one.name, one.text, one.reference.text) == ("one", "今天天气很好。", "你好")
    assert one.reference.audio == tmp_path / "prompts/a.wav"
    assert (two.name, two.reference.audio) == ("two", Path("/abs/b.wav"))
    assert three.reference is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no lines"),
        ("a|b|c.wav|d\na|b|c\n", "line 2: expected utt|prompt_text|prompt_wav|text"),
        ("a|b|c.wav| \n", "line 1"),
        ("a|b|c.wav|d\na|b|c.wav|e\n", "2 utterances are called 'a'"),
    ],
)
def test_bad_manifest_says_where(tmp_path, content, words):
    (tmp_path / "set.txt").write_text(content)
    with pytest.raises(WorkloadError) as caught:
        read_manifest(tmp_path / "set.txt")
    assert words in str(caught.value)


def test_absent_manifest_is_named(tmp_path):
    with pytest.raises(WorkloadError, match=r"none\.txt"):
        read_manifest(tmp_path / "none.txt")


@pytest.mark.parametrize(
    ("split", "dataset"), [("zero_shot_zh", "CV3-Eval"), ("wenetspeech4tts", "seed_tts_cosy2")]
)
def test_split_comes_from_its_data_set(monkeypatch, split, dataset):
    audio = {"array": np.zeros(8), "sampling_rate": 24000}
    row = {"id": 7, "prompt_text": "words", "target_text": "text", "prompt_audio": audio}
    asked = []

    def load_dataset(name, split):
        asked.append((name, split))
        return [row]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    [utterance] = read_split(split)
    assert asked == [(f"yuekai/{dataset}", split)]
    assert (utterance.name, utterance.text, utterance.reference.text) == ("7", "text", "words")
    assert utterance.reference.audio[1] == 24000


def test_split_without_the_package_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(WorkloadError, match="pip install datasets, or give a manifest"):
        read_split("test_zh")


def test_built_in_texts_are_distinct_and_of_many_lengths():
    lengths = sorted(len(utterance.text) for utterance in built_in())
    assert len({utterance.text for utterance in built_in()}) == len(lengths)
    assert lengths[0] < 10
    assert lengths[-1] > 200


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("Hello.", None, (f"{INSTRUCTION}Hello.", None)),
        ("Hello.", "", (f"{INSTRUCTION}Hello.", "")),
        ("Hello.", "I say.", ("Hello.", f"{INSTRUCTION}I say.")),
        ("Sing.<|endofprompt|>Hello.", "I say.", ("Sing.<|endofprompt|>Hello.", "I say.")),
        ("Hello.", "Sing.<|endofprompt|>I say.", ("Hello.", "Sing.<|endofprompt|>I say.")),
    ],
)
def test_instruction_stands_before_the_reference_s_words_or_the_text(text, words, expected):
    voice = None if words is None else Reference(np.zeros(8, np.float32), words)
    said, heard = instructed(INSTRUCTION, text, voice)
    assert (said, heard and heard.text) == expected
    assert instructed("", text, voice) == (text, voice)
