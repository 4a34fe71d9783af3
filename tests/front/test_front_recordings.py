"""Recordings as people have them, in each place where the front takes one."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
from test_front_keys import write_keys

from cosyvoice_client import RefusedError
from fake_upstream import tone
from raw_http import ask
from sound_files import RECORDERS, encoded, wav
from voice_uploads import AnalysingUpstream, upload
from wire_client import open_omni

OVERDRIVEN = ": 'an overdriven recording' is not accepted; record it again"


def recorded(suffix, seconds=2.0, **options):
    rate = RECORDERS[suffix][2]
    return encoded(np.resize(tone(1), round(seconds * rate)), suffix, **options)


def data_url(data, kind="audio/mp4"):
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def config(recording, **fields):
    return {"type": "session.config", "response_format": "pcm", "ref_audio": recording, **fields}


@pytest.mark.parametrize("suffix", ["m4a", "mp4", "aac", "webm", "opus", "3gp", "ulaw.wav"])
def test_recording_is_spoken_like_over_http_and_over_a_socket(front, upstream, suffix):
    url = data_url(recorded(suffix))
    assert ask(front, ref_audio=url, ref_text="A tone.").status == 200
    with open_omni(front) as wire:
        wire.send(config(url), {"type": "input.text", "text": "Hello."}, {"type": "input.done"})
        wire.until("session.done")
    for request in upstream.requests:
        reference = request.reference
        rate = 48_000 if suffix in ("webm", "opus") else RECORDERS[suffix][2]
        assert reference.rate == rate
        assert len(reference.samples) / rate == pytest.approx(2, abs=0.1)


def test_video_is_spoken_like(front, upstream):
    assert ask(front, ref_audio=data_url(recorded("mp4", picture="mpeg4"), "video/mp4")).status == 200
    assert len(upstream.requests[0].reference.samples) > 90_000


def test_long_recording_without_words_is_cut_and_the_answer_says_so(front, upstream):
    url = data_url(recorded("m4a", 40))
    answer = ask(front, ref_audio=url)
    assert answer.status == 200
    note = answer.headers["x-reference-note"]
    assert note.endswith("s, of which the first 30.00 s are used")
    with open_omni(front) as wire:
        wire.send(config(url), {"type": "input.text", "text": "Hello."}, {"type": "input.done"})
        told = [each for each in wire.until("session.done") if isinstance(each, dict)]
    assert told[0]["reference_note"] == note
    assert [request.reference.samples.shape for request in upstream.requests] == [(30 * 44_100,)] * 2


def test_what_is_short_enough_has_no_note(front):
    answer = ask(front, ref_audio=data_url(recorded("m4a")))
    assert "x-reference-note" not in answer.headers
    assert "x-reference-note" not in ask(front).headers


@pytest.mark.parametrize(
    ("data", "fields", "says"),
    [
        (wav(tone(31), 24_000), {"ref_text": "Words."}, "it lasts 31.00 s, and at most 30 s can go with a"),
        (wav(tone(0.3), 24_000), {}, "it lasts 0.30 s, and at least 0.5 s are needed"),
        (wav(0 * tone(2), 24_000), {}, "it is silent"),
        (b"This is a text.", {}, "it is damaged, or no sound file: expected a wav"),
        (b"", {}, "the file is empty"),
    ],
    ids=["long", "short", "silent", "text", "empty"],
)
def test_refusal_says_what_was_sent(front, upstream, data, fields, says):
    answer = ask(front, ref_audio=base64.b64encode(data).decode(), **fields)
    assert (answer.status, answer.error["param"]) == (400, "ref_audio")
    assert answer.error["message"].startswith(f"ref_audio: {says}")
    assert upstream.requests == []


class TestVoices:
    @pytest.fixture
    def upstream(self, tmp_path):
        return AnalysingUpstream(tmp_path / "voices")

    @pytest.fixture
    def front(self, start_front, tmp_path):
        return start_front(
            api_keys_file=write_keys(tmp_path / "keys", anna="sk-anna"), voices_dir=tmp_path / "voices"
        )

    @pytest.mark.parametrize("suffix", ["m4a", "mp4", "aac", "webm", "opus", "amr", "alaw.wav"])
    def test_recording_becomes_a_voice(self, front, upstream, suffix, tmp_path):
        data = recorded(suffix)
        answer = upload(front, recording=data)
        assert answer.status == 200
        assert "note" not in json.loads(answer.body)
        assert ask(front, "sk-anna", voice="mine").status == 200
        assert any(path.read_bytes() == data for path in (tmp_path / "voices").rglob("*") if path.is_file())

    def test_long_recording_without_words_becomes_one_with_a_note(self, front):
        answer = upload(front, recording=wav(tone(31), 24_000), ref_text=None)
        assert answer.status == 200
        assert json.loads(answer.body)["note"] == "it lasts 31.00 s, of which the first 30.00 s are used"

    def test_silence_around_a_voice_does_not_make_it_long_enough(self, front, upstream):
        quiet = 0 * tone(2)
        data = wav(np.concatenate([quiet, tone(0.4), quiet]), 24_000)
        said = upload(front, recording=data).error["message"]
        assert said.startswith(
            "audio_sample: it lasts 0.80 s between its silences, of 4.40 s, and at least 1 s"
        )
        assert upstream.requests == []

    def test_refusal_of_the_server_names_what_was_sent(self, front, upstream):
        words = "reference_wav: 'an overdriven recording' is not accepted; record it again"
        upstream.error = RefusedError(f"{upstream.url}: {words}", "invalid_argument")
        answer = upload(front)
        assert (
            answer.error["message"]
            == "audio_sample: 'an overdriven recording' is not accepted; record it again"
        )


def test_refusal_of_the_server_names_the_field_that_was_sent(front, upstream):
    upstream.error = RefusedError(f"{upstream.url}: reference_wav{OVERDRIVEN}", "invalid_argument")
    answer = ask(front, ref_audio=data_url(recorded("m4a")))
    assert answer.error["message"] == f"ref_audio{OVERDRIVEN}"
