"""Files of word times."""

from __future__ import annotations

import dataclasses
import json
from argparse import ArgumentParser
from functools import partial

import numpy as np
import pytest

from cosyvoice_client.captions import FILES, Captions, add_caption_files, asked_files, without_tags
from cosyvoice_client.chunk import AudioChunk
from cosyvoice_client.errors import InvalidArgumentError, RefusedError
from cosyvoice_client.script import said
from cosyvoice_client.words import TimedWord
from cosyvoice_runtime.text.markup.unsaid import blanked

SENT = "Tom & I <break time='1s'/> left. 我们走了，好吗 ok"
SAID = ["Tom", "&", "I", "left.", "我", "们", "走", "了", "，", "好", "吗", "ok"]


def watched(captions, *spoken, by="attention"):
    """Captions that have seen texts, each with the words of its chunk and its seconds."""
    with captions.written():
        for text, words, seconds in spoken:
            chunk = AudioChunk(np.zeros(round(1000 * seconds), np.float32), 0.0, sample_rate=1000)
            chunk = dataclasses.replace(chunk, words=words, words_by=by)
            assert list(captions.watch(text, [chunk])) == [chunk]


@pytest.fixture(params=[partial(blanked, markup=None), without_tags], ids=["library", "client"])
def write(request, tmp_path):
    """Writes words, each of half a second and the second text after the first, and returns the content."""

    def write(kind: str) -> str:
        path = tmp_path / "file"
        words = [TimedWord(word, at / 2, at / 2 + 0.5) for at, word in enumerate(SAID)]
        captions = Captions({path: FILES[kind][1]}, request.param)
        watched(captions, (SENT, words, 7.25), ("Next.", [TimedWord("Next.", 0.1, 0.5)], 1.0))
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


def test_chinese_is_told_by_words_where_that_is_asked_for(tmp_path):
    path, sent = tmp_path / "file", "我在北京大学 ok"
    characters = [TimedWord(word, at / 2, at / 2 + 0.5) for at, word in enumerate([*sent[:6], "ok"])]
    watched(Captions({path: FILES["vtt"][1]}, without_tags, "word"), (sent, characters, 4.0))
    told = "我<00:00:00.500>在<00:00:01.000>北京大学 <00:00:03.000>ok"
    assert path.read_text("utf-8").endswith(f"00:00:00.000 --> 00:00:03.500\n{told}\n")


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
    text = " ".join(["word"] * 20)
    words = [TimedWord("word", at + (at > 2), at + 1 + (at > 2)) for at in range(20)]
    watched(Captions({path: FILES["srt"][1]}, str), (text, words, 30.0))
    lines = path.read_text().split("\n")[2::4]
    assert lines[0] == "word word word"
    assert max(map(len, lines)) <= 42
    assert " ".join(lines) == text


def test_what_takes_no_time_has_no_caption_of_its_own(tmp_path):
    path = tmp_path / "a.srt"
    sent = "# 走. ## Two - three\n```\ncode\n```"
    words = [
        ("#", 0.2, 0.2),
        ("走", 1.0, 1.5),
        (".", 1.5, 1.5),
        ("##", 1.9, 1.9),
        ("Two", 2.5, 3.0),
        ("-", 3.0, 3.0),
    ]
    words += [("three", 3.0, 3.5), ("```", 4.1, 5.2), ("code", 6.0, 6.0), ("```", 6.0, 6.0004)]
    watched(Captions({path: FILES["srt"][1]}, str), (sent, [TimedWord(*word) for word in words], 5.0))
    assert path.read_text() == (
        "1\n00:00:01,000 --> 00:00:01,500\n走.\n\n2\n00:00:02,500 --> 00:00:03,500\nTwo - three\n"
    )


def test_caption_ends_with_a_text_and_with_a_turn(tmp_path):
    path = tmp_path / "a.srt"
    talk = said([{"text": "Hi there"}, {"text": "- Yes\nor no"}])
    spoken = []
    for text, words in ((talk, ["Hi", "there", "-", "Yes", "or", "no"]), ("So", ["So"])):
        timed = [TimedWord(word, at / 2, at / 2 + 0.5 * (word != "-")) for at, word in enumerate(words)]
        spoken.append((text, timed, 2.5))
    watched(Captions({path: FILES["srt"][1]}, str), *spoken)
    assert path.read_text().split("\n")[2::4] == ["Hi there", "Yes or no", "So"]


def test_mark_behind_a_tag_has_no_space_before_it_and_a_word_has(tmp_path):
    words = [TimedWord(word, at, at + 1) for at, word in enumerate(["Go", "now", ",", "he", "!"])]
    sent = "Go <b>now</b>,<br/>he !"
    watched(Captions({tmp_path / "a": FILES["srt"][1]}, without_tags), (sent, words, 5.0))
    assert (tmp_path / "a").read_text().split("\n")[2] == "Go now, he !"


def test_times_within_a_caption_of_webvtt_go_on_and_stay_within(tmp_path):
    words = [("One", 0.0, 0.5), ("-", 0.5, 0.5), ("-", 0.5, 0.5), ("two", 0.7, 1.0), ("-", 1.0, 1.0)]
    watched(
        Captions({tmp_path / "a": FILES["vtt"][1]}, str),
        ("One - - two -", [TimedWord(*w) for w in words], 1.0),
    )
    assert (tmp_path / "a").read_text().endswith("\nOne <00:00:00.500>- - <00:00:00.700>two -\n")


@pytest.mark.parametrize("heard", [True, False])
def test_words_before_an_error_are_written_and_an_older_file_stays(tmp_path, heard):
    path = tmp_path / "a.srt"
    path.write_text("older")
    captions = Captions({path: FILES["srt"][1]}, str)
    words = [TimedWord("One", 0.0, 0.5)] if heard else []

    def failing():
        yield dataclasses.replace(
            AudioChunk(np.zeros(500, np.float32), 0.0), words=words, words_by="attention"
        )
        raise RefusedError("line 2: no")

    with pytest.raises(RefusedError, match="line 2: no"), captions.written():
        list(captions.watch("One two.", failing()))
    assert path.read_text() == ("1\n00:00:00,000 --> 00:00:00,500\nOne\n" if heard else "older")


@pytest.mark.parametrize(("given", "named"), [(["--vtt", "a"], "--vtt: a"), (["-o", "a"], "--srt: a")])
def test_each_file_has_a_name_of_its_own(given, named):
    parser = ArgumentParser()
    add_caption_files(parser)
    parser.add_argument("-o", dest="output")
    with pytest.raises(InvalidArgumentError, match=f"{named} is another output, too"):
        asked_files(parser.parse_args(["--srt", "a", *given]))


def test_file_that_can_not_be_written_is_told_before_anything_is_spoken(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)
    with pytest.raises(InvalidArgumentError, match=r"a\.srt: it can't be written"):
        Captions({tmp_path / "a.srt": FILES["srt"][1]}, str)


def test_missing_folder_is_told_before_anything_is_spoken(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"none.*a\.srt: expected a file in a folder that exists"):
        Captions({tmp_path / "none" / "a.srt": FILES["srt"][1]}, str)


def test_methods_of_all_texts_are_named(tmp_path):
    captions = Captions({tmp_path / "a.json": FILES["words"][1]}, str)
    watched(captions, ("One.", [TimedWord("One.", 0.0, 0.5)], 1.0))
    watched(captions, ("Two.", [TimedWord("Two.", 0.0, 0.5)], 1.0), by="estimate")
    assert json.loads((tmp_path / "a.json").read_text())["method"] == "attention, estimate"


def test_word_that_is_not_in_the_text_stands_apart(tmp_path):
    words = [TimedWord(word, at, at + 1) for at, word in enumerate(["Hi,", "over", "there."])]
    watched(Captions({tmp_path / "a.srt": FILES["srt"][1]}, str), ("Hi,there.", words, 3.0))
    assert (tmp_path / "a.srt").read_text().split("\n")[2] == "Hi, overthere."


def test_server_without_words_is_an_error(tmp_path):
    captions = Captions({tmp_path / "a.srt": FILES["srt"][1]}, str)
    with pytest.raises(RefusedError, match="the server told none"):
        watched(captions, ("Hi.", [], 1.0), by="")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a<b and c>d", "a<b and c>d"),
        ("Wait <break time='1s'/> a time", "Wait                    a time"),
        ('<speak>Hi [pause:0.5s] <voice name="a b">you</voice></speak>', "Hi you"),
        ("<!-- no --><p>1 < 2</p>", "1 < 2"),
        ("[1] <3", "[1] <3"),
    ],
)
def test_what_looks_like_a_tag_is_no_word(text, left):
    assert len(without_tags(text)) == len(text)
    assert without_tags(text).split() == left.split()


def test_captions_begin_where_the_speech_does(tmp_path):
    text = "The <b>cat</b> sat. The dog ran home. The cat ran."
    captions = Captions({tmp_path / "a.srt": FILES["srt"][1]}, without_tags)
    words = [TimedWord(word, at / 2, at / 2 + 0.5) for at, word in enumerate(("The", "cat", "ran."))]
    sound = np.zeros(1500, np.float32)
    chunks = [
        AudioChunk(sound[:500], 0.0, sample_rate=1000, words_by="attention", start_character=37),
        AudioChunk(sound, 0.0, sample_rate=1000, words=words, words_by="attention"),
    ]
    assert text[37:] == " The cat ran."
    with captions.written():
        list(captions.watch(text, chunks))
    assert (tmp_path / "a.srt").read_text().splitlines()[2:] == ["The cat ran."]
