"""Files of word times."""

from __future__ import annotations

import json

import pytest

from cosyvoice_client.errors import InvalidArgumentError
from cosyvoice_runtime.alignment.words import TimedWord
from cosyvoice_runtime.local.captions import WRITERS, Captions

SENT = "Tom & I <break time='1s'/> left. 我们走了，好吗 ok"
SAID = ["Tom", "&", "I", "left.", "我", "们", "走", "了", "，", "好", "吗", "ok"]


@pytest.fixture
def write(tmp_path):
    """Writes words, each of half a second and the second text after the first, and returns the content."""

    def write(kind: str) -> str:
        path = tmp_path / "file"
        captions = Captions({path: WRITERS[kind]}, "attention", None)
        captions.add(SENT, [TimedWord(word, at / 2, at / 2 + 0.5) for at, word in enumerate(SAID)], 7.25)
        captions.add("Next.", [TimedWord("Next.", 0.1, 0.5)], 1.0)
        captions.write()
        return path.read_text("utf-8")

    return write


def test_json_has_words_as_they_were_sent(write):
    content = json.loads(write("words"))
    assert content["method"] == "attention"
    assert [word["word"] for word in content["words"]] == [*SAID, "Next."]
    assert content["words"][-1] == {"word": "Next.", "start": 7.35, "end": 7.75}


def test_captions_end_with_sentences_and_keep_spaces_as_they_were(write):
    assert write("srt") == (
        "1\n00:00:00,000 --> 00:00:02,000\nTom & I left.\n\n"
        "2\n00:00:02,000 --> 00:00:06,000\n我们走了，好吗 ok\n\n"
        "3\n00:00:07,350 --> 00:00:07,750\nNext.\n"
    )


def test_webvtt_has_a_time_for_each_word(write):
    header, note, first, second, _ = write("vtt").split("\n\n")
    assert header == "WEBVTT"
    assert note.startswith("NOTE\n")
    assert first == (
        "00:00:00.000 --> 00:00:02.000\nTom <00:00:00.500>&amp; <00:00:01.000>I <00:00:01.500>left."
    )
    assert second.endswith("，<00:00:04.500>好<00:00:05.000>吗 <00:00:05.500>ok")


def test_caption_is_one_line_at_most_and_ends_before_a_pause(tmp_path):
    path = tmp_path / "a.srt"
    captions = Captions({path: WRITERS["srt"]}, "estimate", None)
    text = " ".join(["word"] * 20)
    words = [TimedWord("word", at + (at > 2), at + 1 + (at > 2)) for at in range(20)]
    captions.add(text, words, 30.0)
    captions.write()
    lines = path.read_text().split("\n")[2::4]
    assert lines[0] == "word word word"
    assert max(map(len, lines)) <= 42
    assert " ".join(lines) == text


def test_missing_folder_is_told_before_anything_is_spoken(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"none.*a\.srt: expected a file in a folder that exists"):
        Captions({tmp_path / "none" / "a.srt": WRITERS["srt"]}, "estimate", None)
