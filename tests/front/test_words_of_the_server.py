"""Words that the server times, on their way to clients, and the estimate where it tells none."""

from __future__ import annotations

import asyncio
import logging

import pytest

from cosyvoice_client import AudioChunk, RefusedError, SpeechRequest
from cosyvoice_client.encoders import FORMATS
from cosyvoice_client.words import TimedWord
from cosyvoice_front import older_server
from cosyvoice_front.heard_words import ESTIMATE, HeardWords, LeavingWords
from cosyvoice_runtime.alignment.estimate import WordTimes
from decoded import DELAY_SAMPLES, audio_of, decode, events
from fake_server import fake_server
from fake_text import CHARACTER_S
from fake_upstream import FakeUpstream, tone
from front_server import running_front
from raw_http import ask
from wire_client import asked, audio_in, open_cartesia, open_omni, words_in

RATE = 24_000
TEXT = "Eight words are said here in all, friends."
EVENTS = {"input": TEXT, "stream_format": "sse", "word_timestamps": True, "response_format": "pcm"}


@pytest.fixture
def upstream():
    upstream = FakeUpstream([tone(0.3), tone(0.5), tone(0.8)])
    upstream.words_by = "attention"
    return upstream


def told(found):
    """The words of events, and how they are timed."""
    events = [each for each in found if each["type"] == "speech.audio.words"]
    return [word for each in events for word in each["words"]], {each["by"] for each in events}


def test_words_of_events_are_the_server_s(front, upstream):
    words, by = told(events(ask(front, **EVENTS).body))
    assert by == {"attention"}
    assert [word["word"] for word in words] == TEXT.split()
    assert [(word["start_s"], word["end_s"]) for word in words] == [(n / 5, (n + 1) / 5) for n in range(8)]
    assert {word["voice"] for word in words} == {"alloy"}
    assert upstream.requests[0].words is True


def test_nobody_asks_the_server_for_words_that_nobody_wants(front, upstream):
    assert told(events(ask(front, stream_format="sse").body)) == ([], set())
    with open_cartesia(front) as wire:
        wire.send(asked(add_timestamps=False))
        wire.until("done")
    assert [request.words for request in upstream.requests] == [None, None]


@pytest.mark.parametrize(
    "fields",
    [*({"response_format": format} for format in FORMATS), {"sample_rate": 8_000}, {"target_lufs": -20}],
    ids=str,
)
def test_words_follow_their_audio(front, upstream, fields):
    upstream.chunks = [tone(0.05)] * 40
    given = EVENTS | fields
    file, most_behind, format = [], 0.0, given["response_format"]
    rate = given.get("sample_rate", 8_000 if format.startswith("g711") else RATE)
    found = events(ask(front, **given).body)
    for number, event in enumerate(found):
        file += [event] if event["type"] == "speech.audio.delta" else []
        if event["type"] == "speech.audio.words" and number < len(found) - 2:
            heard_s = (len(decode(audio_of(file), format, rate)) + DELAY_SAMPLES.get(format, 0)) / rate
            assert event["words"][-1]["end_s"] <= heard_s + 0.002
            most_behind = max(most_behind, heard_s - event["words"][-1]["end_s"])
    assert most_behind < 0.25
    assert [word["word"] for word in told(found)[0]] == TEXT.split()


def test_words_of_an_answer_that_is_held_back_come_at_its_end(front):
    found = events(ask(front, **EVENTS, stream=False, target_lufs=-20).body)
    kinds = [event["type"].rpartition(".")[2] for event in found]
    assert kinds[-2:] == ["words", "done"]
    assert kinds.count("words") == 1


def test_each_word_of_turns_has_the_voice_of_its_turn(front, monkeypatch):
    async def speak(_self, request, request_id="", name=None):
        for number, turn in enumerate(request.turns):
            begin_s = number * 0.5
            words = [
                TimedWord(word, begin_s + place * 0.1, begin_s + place * 0.1 + 0.1)
                for place, word in enumerate(turn["text"].split())
            ]
            yield AudioChunk(tone(0.2), 0.0, words=words[:1], words_by="attention")
            yield AudioChunk(tone(0.3), 0.0, "stop", 9, words=words[1:], words_by="attention")

    monkeypatch.setattr(FakeUpstream, "speak", speak)
    turns = [{"voice": "anna", "text": "Hear that?"}, {"voice": "ben", "text": "Hear what? No."}]
    answer = ask(front, **EVENTS | {"input": None, "voice": None, "turns": turns})
    words, by = told(events(answer.body))
    assert by == {"attention"}
    assert [(word["word"], word["voice"], word["start_s"]) for word in words] == [
        ("Hear", "anna", 0.0), ("that?", "anna", 0.1),
        ("Hear", "ben", 0.5), ("what?", "ben", 0.6), ("No.", "ben", 0.7),
    ]  # fmt: skip


def test_server_without_words_leaves_an_estimate_that_says_so(front, upstream):
    upstream.words_by = ""
    words, by = told(events(ask(front, **EVENTS).body))
    assert by == {ESTIMATE}
    assert [word["word"] for word in words] == TEXT.split()
    assert upstream.requests[0].words is True


def test_first_chunk_decides_who_times_the_words():
    words = HeardWords(WordTimes())
    words.add("one two three ")
    word = TimedWord("one", 0.0, 0.1)
    assert words.hear(AudioChunk(tone(0.2), 0.0, words=[word], words_by="attention")) == [word]
    assert words.by == "attention"
    assert not [*words.hear(AudioChunk(tone(2.0), 0.0)), *words.finish()]
    late = HeardWords(WordTimes())
    late.add("one two three ")
    found = [*late.hear(AudioChunk(tone(0.2), 0.0))]
    found += late.hear(AudioChunk(tone(0.2), 0.0, words=[word], words_by="attention"))
    assert late.by == ESTIMATE
    assert [each.text for each in [*found, *late.finish()]] == ["one", "two", "three"]


def test_words_wait_in_order_for_their_audio():
    leaving = LeavingWords()
    words = [("a", 0.2, "x"), ("b", 0.5004, "x"), ("c", 0.3, "x"), ("d", 0.6, "y"), ("e", 0.6, "x")]
    for name, end_s, by in words:
        leaving.add(name, end_s, by)
    assert leaving.taken(0.1) == []
    assert leaving.taken(0.4) == [("x", ["a"])]
    assert leaving.taken(0.5) == [("x", ["b", "c"])]  # the server's end may be rounded up
    assert leaving.taken() == [("y", ["d"]), ("x", ["e"])]
    assert leaving.taken() == []


@pytest.mark.parametrize("rate", [24_000, 8_000])
def test_context_of_cartesia_s_has_the_server_s_words(front, upstream, rate):
    text, heard_s = "Many words come here. They follow their audio.", 0.0
    format = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": rate}
    with open_cartesia(front) as wire:
        wire.send(asked(text[:30], output_format=format, max_buffer_delay_ms=5000, **{"continue": True}))
        wire.send(asked(text[30:], output_format=format, max_buffer_delay_ms=5000))
        messages = wire.until("done")
    assert upstream.requests[0].words is True
    assert {each["by"] for each in messages if each["type"] == "timestamps"} == {"attention"}
    for number, message in enumerate(messages):
        heard_s += len(audio_in([message])) / rate
        for _, _, end_s in words_in([message]) if number < len(messages) - 2 else []:
            assert end_s <= heard_s + 0.001
    begins, place = [], 0
    for word in text.split():
        begins.append(text.index(word, place) * CHARACTER_S)
        place = text.index(word, place) + len(word)
    assert [word for word, _, _ in words_in(messages)] == text.split()
    assert [start_s for _, start_s, _ in words_in(messages)] == pytest.approx(begins, abs=0.001)


@pytest.mark.parametrize("words_by", ["attention", ""])
def test_socket_of_vllm_omni_says_how_words_are_timed(front, upstream, words_by):
    upstream.words_by = words_by
    with open_omni(front) as wire:
        config = {"type": "session.config", "response_format": "pcm", "word_timestamps": True}
        wire.send(config, {"type": "input.text", "text": "Hello there. "}, {"type": "input.done"})
        messages = wire.until("session.done")
    chunks = [each for each in messages if each["type"] == "audio.chunk" and each["timestamps"]]
    assert {each["by"] for each in chunks} == {words_by or ESTIMATE}
    words = [word for each in chunks for word in each["timestamps"]]
    assert [word["word"] for word in words] == ["Hello", "there."]
    if words_by:
        assert [(word["start_ms"], word["end_ms"]) for word in words] == [(0, 250), (300, 600)]


@pytest.fixture(scope="module", params=["present", "older"])
def server(request, tmp_path_factory):
    """A real tritonserver with fake models; an older one refuses a request for words."""
    folder = tmp_path_factory.mktemp("server") / "repository"
    with fake_server(folder, is_older=request.param == "older") as server:
        server.is_older = request.param == "older"
        yield server


@pytest.fixture
def whole_front(server, resources):
    older_server._tell.cache_clear()
    return resources.enter_context(running_front(grpc_url=server.grpc_url))


def test_words_come_through_all_of_it(server, whole_front, caplog):
    given = EVENTS | {"input": "id=3 chunks=4 by=attention"}
    with caplog.at_level(logging.WARNING):
        answers = [events(ask(whole_front, **given).body) for _ in range(2)]
    for found in answers:
        words, by = told(found)
        assert by == {ESTIMATE if server.is_older else "attention"}
        expected = given["input"].split() if server.is_older else ["0", "1", "2", "3"]
        assert [word["word"] for word in words] == expected
        assert len(decode(audio_of(found), "pcm")) == 4 * 2_400
    logged = [each.message for each in caplog.records if "too old" in each.message]
    assert len(logged) == server.is_older


def test_text_in_pieces_of_a_server_that_tells_no_words_of_it_is_estimated(server, whole_front):
    with open_cartesia(whole_front) as wire:
        wire.send(asked("Hello there. "))
        messages = wire.until("done")
    assert len(audio_in(messages)) == 24 * len("Hello there. ")
    assert [word for word, _, _ in words_in(messages)] == ["Hello", "there."]
    assert {each["by"] for each in messages if each["type"] == "timestamps"} == {ESTIMATE}


def test_other_refusals_are_told_as_they_are(server, whole_front):
    says = "speech:_no"
    answer = ask(whole_front, **EVENTS | {"input": f"id=3 fail=INVALID_ARGUMENT says={says}"})
    assert (answer.status, answer.error["message"].rpartition(": ")[2]) == (400, "no")


def test_words_that_are_no_json_cost_no_audio_and_are_logged_once(server, whole_front, caplog):
    from cosyvoice_client import words

    words._tell_unread.cache_clear()
    given = EVENTS | {"input": "id=3 chunks=4 by=broken"}
    with caplog.at_level(logging.WARNING):
        answers = [events(ask(whole_front, **given).body) for _ in range(2)]
    for found in answers:
        assert found[-1]["type"] == "speech.audio.done"
        assert len(decode(audio_of(found), "pcm")) == 4 * 2_400
        if not server.is_older:
            assert [word["word"] for word in told(found)[0]] == ["0", "2", "3"]
    assert sum("can't be read" in each.message for each in caplog.records) == (not server.is_older)


def test_refusal_amid_a_text_in_pieces_is_no_matter_of_words():
    def open_text(request):
        raise RefusedError("upstream: voice: 'x' is not accepted")

    async def work():
        async with older_server.opened(open_text, SpeechRequest("", words=True)):
            pass

    with pytest.raises(RefusedError, match="voice: 'x'"):
        asyncio.run(work())
