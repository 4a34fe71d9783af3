"""The field's contract against a front around a fake, against a real server with fake models, and alone."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="needs the environment of scripts/environment.py --test")
pytest.importorskip("av", reason="needs the environment of scripts/environment.py --test")

import contract
from cosyvoice_client import AudioChunk, ClientError, UnavailableError
from cosyvoice_client.timeline import Timeline
from fake_upstream import FakeUpstream, tone
from front_server import running_front
from measuring.audible import LOUD, Onset, heard_at, listened
from measuring.contract_figures import contract_figures, contract_table, in_flight, of_seeds
from measuring.contract_texts import WORDS, own_texts
from measuring.front_speech import FrontSpeech
from measuring.load import Sample

RATE = 24_000
HOP = RATE // 100


def level(rms, seconds):
    """A square wave of this root mean square."""
    return np.tile([rms, -rms], round(seconds * RATE / 2)).astype(np.float32)


def silence(seconds):
    return np.zeros(round(seconds * RATE), np.float32)


def onset_of(audio, size=RATE, rate=RATE):
    onset = Onset()
    for start in range(0, len(audio), size):
        onset.add(audio[start : start + size], rate)
    return onset.at_s


# Audible


@pytest.mark.parametrize("size", [1, 7, HOP, 480, 1000, RATE])
@pytest.mark.parametrize("before_s", [0.0, 0.01, 0.2, 0.83])
def test_onset_is_the_first_of_two_loud_windows_however_audio_is_cut(before_s, size):
    audio = np.concatenate([silence(before_s), level(0.1, 0.1)])
    # A window that holds half of the first sounds is loud, too.
    assert onset_of(audio, size) == pytest.approx(max(0, before_s - 0.01))


def test_threshold_is_45_db_below_full_scale():
    assert 20 * math.log10(LOUD) == pytest.approx(-45.0)
    assert onset_of(level(0.99 * LOUD, 1.0)) is None
    assert onset_of(level(1.01 * LOUD, 1.0)) == 0.0


def test_offset_of_a_recorder_is_no_sound():
    assert onset_of(np.full(RATE, 0.3, np.float32)) is None


def test_one_loud_window_is_a_click():
    audio = silence(0.2)
    audio[: 2 * HOP] = level(LOUD * 1.2, 0.02)
    assert onset_of(audio) is None


def test_onset_is_in_seconds_at_any_rate():
    audio = np.concatenate([np.zeros(8000, np.float32), level(0.1, 1.0)])
    assert onset_of(audio, rate=16_000) == pytest.approx(0.49)


@pytest.mark.parametrize(
    ("position_s", "heard_s"), [(0.0, 0.5), (0.25, 0.75), (1.0, 2.0), (1.5, 2.5), (2.5, 3.5), (3.0, None)]
)
def test_position_is_heard_when_what_is_before_it_has_been_played(position_s, heard_s):
    """The second chunk comes half a second after the first has been played, the third before it is due."""
    assert heard_at([(0.5, 1.0), (2.0, 1.0), (2.1, 1.0)], position_s) == heard_s


def test_chunk_is_looked_at_after_it_has_been_noted():
    async def chunks():
        yield AudioChunk(level(0.5, 0.1), 0.0)

    async def first():
        onset = Onset()
        stream = listened(chunks(), onset)
        await anext(stream)
        seen = onset.at_s
        assert [chunk async for chunk in stream] == []
        return seen, onset.at_s

    assert asyncio.run(first()) == (None, 0.0)


# Texts


def test_own_texts_are_as_long_as_those_of_seed_tts():
    texts = [utterance.text for utterance in own_texts()]
    assert len(texts) == len(set(texts)) == sum(WORDS.values()) == 1088
    assert Counter(len(text.split()) for text in texts) == WORDS
    assert np.mean([len(text) for text in texts]) == pytest.approx(61, abs=0.5)
    assert texts == [utterance.text for utterance in own_texts()]
    shorter = [len(utterance.text.split()) for utterance in own_texts(0.74)]
    assert min(shorter) == 3
    assert sum(shorter) / len(shorter) == pytest.approx(
        0.74 * sum(map(len, map(str.split, texts))) / len(texts), rel=0.02
    )
    assert all(text[0].isupper() and text.endswith(".") and text.isascii() for text in texts)


# Figures


def sample(started_s, latency_s, *arrivals, onset_s=None, error=None):
    timeline = Timeline()
    for arrival in arrivals:
        timeline.add(*arrival)
    return Sample("a", started_s, latency_s, timeline, error=error, onset_s=onset_s)


SAMPLES = [
    sample(0.0, 30.0, (0.9, 9.0), onset_s=0.0),  # of the warm-up
    sample(10.0, 2.0, (0.1, 1.0), (0.5, 3.0), onset_s=0.25),
    sample(11.0, 4.0, (0.2, 0.5), (0.95, 0.5), (1.5, 1.0), onset_s=0.6),
    sample(12.0, 1.0, (0.3, 1.0)),
    sample(13.0, 0.5, error="unavailable"),
    sample(14.0, 3.0, (0.1, 0.5), (1.6, 0.5), error="timeout"),
]


def test_figures_are_of_what_was_due_after_the_warm_up():
    figures = contract_figures(SAMPLES, 10.0, 20.0)
    assert (figures["requests"], figures["actual_rate"]) == (5, 0.25)
    assert (figures["refused"], figures["errors"], figures["inaudible"]) == (1, {"timeout": 1}, 1)
    assert figures["first_byte_ms"]["p50"] == 200.0
    assert figures["audible_ms"]["max"] == pytest.approx(1050.0)
    assert figures["audible_ms"]["mean"] == pytest.approx((350 + 1050) / 2)
    assert figures["leading_silence_ms"]["max"] == 600.0
    assert figures["rtf"]["p50"] == 1.0
    # Silences of 0.25 and 0.05 s in one answer and of 1 s in the one that failed.
    assert (figures["underrun_requests"], figures["underrun_s"]) == (2, pytest.approx(1.3))


def test_in_flight_is_the_mean_of_the_window_and_the_peak_of_all():
    figures = in_flight(SAMPLES, 10.0, 20.0)
    assert figures == {"mean": 2.05, "peak": 3}
    back_to_back = [sample(0.0, 1.0), sample(1.0, 1.0)]
    assert in_flight(back_to_back, 0.0, 2.0) == {"mean": 1.0, "peak": 1}


def test_seeds_together_are_medians_and_what_went_wrong_is_added():
    def run(number):
        return {
            "underrun_requests": number,
            "underrun_s": 0.1 * number,
            "refused": number,
            "errors": {"timeout": number},
            "actual_rate": number,
            "audible_ms": {"p95": 10.0 * number} if number else None,
        }

    assert of_seeds([run(3), run(0), run(1)]) == {
        "underrun_requests": 4,
        "underrun_s": 0.4,
        "refused": 4,
        "errors": {"timeout": 4},
        "actual_rate": 1,
        "audible_ms": {"p95": 20.0},
    }


def test_row_of_a_run_without_an_answer_has_dashes():
    figures = {**contract_figures(SAMPLES[4:5], 10.0, 20.0), "lag_ms": None, "client_cpu": 0.0}
    [*_, row] = contract_table([{"wire": "gRPC", "rate": 8.0, "figures": figures}]).splitlines()
    assert row.startswith("| gRPC | 8 | 0.0500 | 0 of 1 | 0.000 | - | - | - | - | - |")
    assert row.endswith("| 1 | 0 | - | 0.00 |")


# The command


def run(folder, *arguments):
    line = ["--output-dir", str(folder), "--warmup", "0", "--seconds", "0.5", "--rates", "20", "--seeds", "2"]
    status = contract.main([*line, *arguments])
    path = folder / "results.json"
    return status, json.loads(path.read_text()) if path.exists() else None


def test_front_is_measured_with_one_voice_and_the_texts_in_an_order_of_the_seed(tmp_path, capsys):
    upstream = FakeUpstream([np.concatenate([silence(0.1), tone(0.3)]), tone(0.5)])
    with running_front(upstream) as front:
        status, report = run(tmp_path, "--front", front.url)
    assert status == 0
    [row] = report["rows"]
    figures = row["figures"]
    assert (row["wire"], row["rate"], [each["seed"] for each in row["runs"]]) == (
        "OpenAI's API",
        20.0,
        [0, 1],
    )
    assert figures["requests"] == sum(each["requests"] for each in row["runs"]) == len(upstream.requests) - 1
    assert (figures["refused"], figures["errors"], figures["inaudible"]) == (0, {}, 0)
    assert figures["leading_silence_ms"]["p50"] == pytest.approx(90.0, abs=10)
    assert figures["audible_ms"]["p50"] > figures["first_byte_ms"]["p50"] + 80
    assert figures["client_cpu"] > 0
    assert figures["lag_ms"]["max"] >= figures["lag_ms"]["p50"] > 0
    spoken = [request.text for request in upstream.requests]
    assert set(spoken) <= {utterance.text for utterance in own_texts()}
    assert len(set(spoken[1:])) > 10
    assert {(request.voice, request.language) for request in upstream.requests} == {(None, "en")}
    table = (tmp_path / "results.md").read_text()
    assert "| OpenAI's API | 20 |" in table
    assert table in capsys.readouterr().out


def test_server_is_measured_over_grpc_with_published_texts(server, tmp_path):
    (tmp_path / "meta.lst").write_text("a|words|a.wav|chunks=3 samples=1200\nb|words|b.wav|chunks=2 id=5\n")
    status, report = run(tmp_path, "--grpc", server.grpc_url, "--texts", str(tmp_path / "meta.lst"))
    assert status == 0
    [row] = report["rows"]
    assert (row["wire"], report["texts"]) == ("gRPC", 2)
    assert row["figures"]["errors"] == {}
    assert row["figures"]["inaudible"] == row["figures"]["requests"] > 0  # Samples of one value are no sound.
    inputs = server.report()["inputs"]
    assert inputs["language"]["first"] == "English"
    assert "reference_wav" not in inputs


def test_own_cost_is_that_of_a_server_that_answers_at_once(tmp_path):
    status, report = run(tmp_path, "--own-cost", "--seeds", "1")
    assert status == 0
    [row] = report["rows"]
    figures = row["figures"]
    assert (row["wire"], figures["errors"], figures["inaudible"]) == ("no server", {}, 0)
    assert figures["first_byte_ms"]["p50"] <= figures["latency_ms"]["p50"]
    assert figures["leading_silence_ms"]["max"] == 0.0
    assert figures["audio_s_per_s"] == pytest.approx(5 * figures["requests"] / 0.5)


def test_short_form_is_one_seed_of_a_minute():
    options = contract.parse(["--grpc", "x", "--short"])
    assert (options.seeds, options.seconds, options.warmup) == (1, 60.0, 30.0)
    assert contract.parse(["--grpc", "x", "--short", "--seeds", "2"]).seeds == 2
    options = contract.parse(["--front", "x"])
    assert (options.seeds, options.seconds, options.warmup) == (3, 300.0, 30.0)
    assert options.rates == [1, 2, 4, 8, 10, 16, 20, 30, 40, 60]


@pytest.mark.parametrize(
    "arguments",
    [[], ["--grpc", "x", "--rates", "0"], ["--grpc", "x", "--seeds", "0"], ["--grpc", "x", "--rates", "a"]],
)
def test_options_out_of_range_are_refused(arguments):
    with pytest.raises(SystemExit, match="2"):
        contract.parse(arguments)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--front", "http://127.0.0.1:1"], 1),
        (["--front", "localhost:8080"], 2),
        (["--grpc", "127.0.0.1:1"], 3),
        (["--front", "x", "--texts", "no"], 2),
    ],
)
def test_what_can_not_be_asked_is_an_error_at_once(tmp_path, capsys, arguments, status):
    assert run(tmp_path, *arguments) == (status, None)
    assert capsys.readouterr().err.startswith("error: ")


# Errors of the front


def heard(front, body):
    async def speak():
        speech = FrontSpeech(front.url, {"model": "tts-1", **body}, "", 30.0)
        try:
            return [chunk async for chunk in speech.speak("Hello.")]
        finally:
            await speech.close()

    return asyncio.run(speak())


def test_samples_are_whole_and_as_the_server_made_them():
    upstream = FakeUpstream()
    with running_front(upstream) as front:
        chunks = heard(front, {"voice": "default"})
    assert np.abs(np.concatenate([chunk.samples for chunk in chunks]) - upstream.samples).max() < 1e-4


@pytest.mark.parametrize(
    ("body", "error_after", "kind"),
    [
        ({"model": "nobody"}, None, "http_404"),
        ({}, 0, "unavailable"),
        ({}, 1, "lost"),
        ({"speed": 9}, None, "http_400"),
    ],
)
def test_errors_have_their_kinds(body, error_after, kind):
    upstream = FakeUpstream()
    if error_after is not None:
        upstream.error, upstream.error_after = UnavailableError("the server is full"), error_after
    with running_front(upstream, resume="false") as front, pytest.raises(ClientError) as raised:
        heard(front, body)
    assert raised.value.kind == kind
