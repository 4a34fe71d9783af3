"""``cosyvoice2`` and ``cosyvoice2_offline`` with all their stages on a real server."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton
from speaking import (
    FEW_STEPS,
    TEXT,
    TIMEOUT_S,
    assert_same_audio,
    client,
    recording,
    reference,
    spoken,
)

import soak
from cosyvoice_client import AsyncSpeechClient, Reference, RefusedError, SpeechRequest
from cosyvoice_client.http_client import HttpSpeechClient
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.local import SpeechRequest as LibraryRequest
from cosyvoice_runtime.supervisor import Server
from cosyvoice_runtime.voice import VoiceStore
from served_library import served_library

MANY_VOICES = 70
"""More than the engine keeps."""
LEAK_SHARE = 0.5
"""Of the waveforms of a round, which is how much memory grows if they alone are kept."""
LEAK_UTTERANCES, ALONE = 40, 8
"""Of a round, and how many of them come one after the other before the others come together."""
LEAK_ROUNDS = 6
"""What leaks grows in each two of them; allocators grow in the first ones, longer on a busy machine."""
SEED_OF_SIX_FATES = "15"
"""With it the first requests of six clients have the six fates of the soak."""


@pytest.fixture(scope="module")
def voices_dir(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("voices")


@pytest.fixture(scope="module")
def server(serve_all, voices_dir) -> Iterator[Server]:
    texts = {
        "cosyvoice2.voices_dir": voices_dir,
        "cosyvoice2.max_inflight_utterances": 32,
        "cosyvoice2.silence_timeout_s": 600,
    }
    with serve_all(**texts) as server:
        yield server


def idle(server: Server, metric) -> bool:
    gauges = ("cosyvoice_lm_active_slots", "cosyvoice_lm_waiting_requests", "cosyvoice_token2wav_utterances")
    return not any(metric(server, gauge) for gauge in gauges)


def test_streamed_equals_offline_over_grpc_and_http(server):
    request = SpeechRequest(TEXT, reference(), seed=5)
    chunks = list(client(server).speak(request))
    streamed = np.concatenate([chunk.samples for chunk in chunks])
    assert len(chunks) > 1
    assert [chunk.finish_reason for chunk in chunks[:-1]] == [""] * (len(chunks) - 1)
    assert chunks[-1].finish_reason == "stop"
    whole = HttpSpeechClient(server.http_url).synthesize(request)
    assert whole.finish_reason == "stop"
    assert_same_audio(streamed, whole.samples)


def test_silences_of_a_text_are_exact_streamed_and_whole(server):
    marked = SpeechRequest("Hello world. <break time='500ms'/>How are you?[pause:0.25s]", reference(), seed=5)
    plain = SpeechRequest("Hello world.", reference(), seed=5)
    streamed = spoken(server, marked)
    assert_same_audio(HttpSpeechClient(server.http_url).synthesize(marked).samples, streamed)
    first = spoken(server, plain)
    assert_same_audio(streamed[: len(first)], first)
    assert not streamed[len(first) :][:12_000].any()
    assert streamed[len(first) + 12_000 :][:2_400].any()
    assert not streamed[-6_000:].any()
    assert streamed[-8_400:-6_000].any()


def test_one_text_changes_between_more_voices_than_the_engine_keeps(server, voices_dir, tiny_checkpoint):
    library = served_library(tiny_checkpoint, ode_steps=FEW_STEPS)
    own = next(iter(library.speakers.values()))
    embedding = own.speaker_embedding
    made = {
        f"v{number}": dataclasses.replace(
            own, key=f"{number:064x}", speaker_embedding=np.roll(embedding, number)
        )
        for number in range(MANY_VOICES)
    }
    store = VoiceStore(voices_dir, own.checkpoint_id)
    for name, voice in made.items():
        store.register(name, voice)
    changed = "".join(f"<voice name='{name}'>Hi.</voice>" for name in [*made, *list(made)[:2]])
    text = f"<speak>{changed}</speak>"
    sampling = SamplingOptions(max_tokens=8, top_p=float(np.float32(0.8)), tau=float(np.float32(0.1)))
    asked = LibraryRequest(text, own, seed=5, sampling=sampling, find_voice=made.__getitem__)
    expected = np.concatenate([chunk.samples for chunk in library.synthesize(asked)])
    request = SpeechRequest(text, voice="default", seed=5, max_tokens=8)
    assert_same_audio(spoken(server, request), expected)
    assert_same_audio(HttpSpeechClient(server.http_url).synthesize(request).samples, expected)


@pytest.mark.parametrize("part", ["break", "voices"])
def test_who_leaves_within_a_marked_text_leaves_nothing_behind(server, metric, eventually, part):
    """During a long silence, or when the first of two voices has spoken."""
    text, voices = {
        "break": ("Hello world.<break time='10s'/> How are you?", None),
        "voices": (
            "<speak>Hello world. <voice name='other'>How are you?</voice></speak>",
            {"other": "default"},
        ),
    }[part]
    request = SpeechRequest(text, reference(), seed=5, text_voices=voices)

    async def leave() -> None:
        async with (
            AsyncSpeechClient(server.grpc_url, timeout_s=TIMEOUT_S) as listener,
            contextlib.aclosing(listener.speak(request)) as chunks,
        ):
            async for chunk in chunks:
                if not chunk.samples.any() if part == "break" else chunk.finish_reason:
                    break

    expected = spoken(server, request)
    for _ in range(3):
        asyncio.run(leave())
    eventually(lambda: idle(server, metric))
    eventually(lambda: not metric(server, "cosyvoice_inflight_utterances"))
    assert_same_audio(spoken(server, request), expected)


def test_a_text_that_asks_for_what_is_not_there_is_refused_alone(server):
    for text, named in (
        ("<speak><voice name='nobody'>Hi.</voice></speak>", "nobody"),
        ("<speak><break time='1h'/>Hi.</speak>", "1h"),
        ("<speak>Hi.", "not closed"),
    ):
        with pytest.raises(RefusedError, match=named):
            spoken(server, SpeechRequest(text, reference(), seed=5))
    text, voices = "<speak><voice name='{}'>Hi.</voice></speak>", {"x": "default"}
    assert len(spoken(server, SpeechRequest(text.format("x"), seed=5, text_voices=voices)))
    with pytest.raises(RefusedError, match="may name"):
        spoken(server, SpeechRequest(text.format("default"), seed=5, text_voices=voices))


def test_turns_are_spoken_as_their_texts_are_with_the_silence_between_them(server, eventually, metric):
    """The first turn is the same speech as alone; the second one has seeds of its own."""
    turns = [{"voice": "", "text": "Hello world."}, {"voice": "default", "text": "How are you?"}]
    asked = SpeechRequest(turns=turns, turn_pause_s=0.5, seed=5)
    streamed, alone = spoken(server, asked), spoken(server, SpeechRequest("Hello world.", seed=5))
    assert_same_audio(streamed[: len(alone)], alone)
    assert not streamed[len(alone) :][:12_000].any()
    assert streamed[len(alone) + 12_000 :][:2_400].any()
    assert_same_audio(HttpSpeechClient(server.http_url).synthesize(asked).samples, streamed)
    assert_same_audio(spoken(server, asked), streamed)
    with pytest.raises(RefusedError, match=r"turns\[1\]\.voice: 'nobody'"):
        spoken(server, SpeechRequest(turns=[turns[0], {"voice": "nobody", "text": "Hi."}]))
    eventually(lambda: idle(server, metric))


def test_a_lexicon_of_a_request_counts_for_it_alone(server):
    plain = spoken(server, SpeechRequest("Hello moon.", reference(), seed=5))
    written = SpeechRequest("Hello sun.", reference(), seed=5, lexicon={"sun": "moon"})
    assert_same_audio(spoken(server, written), plain)
    with pytest.raises(RefusedError, match="line 1"):
        spoken(server, SpeechRequest("Hello.", reference(), lexicon={"a": ""}))


def test_voices_are_remembered_and_default_voice_needs_nothing(server):
    first = spoken(server, SpeechRequest(TEXT, reference(), seed=2))
    again = spoken(server, SpeechRequest(TEXT, reference(), seed=2))
    other = spoken(server, SpeechRequest(TEXT, reference(220), seed=2))
    default = spoken(server, SpeechRequest(TEXT, seed=2))
    named = spoken(server, SpeechRequest(TEXT, voice="default", seed=2))
    assert_same_audio(again, first)
    assert_same_audio(named, default)
    assert first.shape != other.shape or np.abs(first - other).max() > 0.01


def test_voice_is_spoken_and_remembered_on_a_full_disk(server, voices_dir):
    incoming = voices_dir / "voices" / ".incoming"
    incoming.symlink_to("/dev/full")  # what is written there has no space left on the device
    kept = set(voices_dir.glob("voices/*.safetensors"))
    first = spoken(server, SpeechRequest(TEXT, reference(170), seed=2))
    assert not incoming.is_symlink()
    assert_same_audio(spoken(server, SpeechRequest(TEXT, reference(170), seed=2)), first)
    assert set(voices_dir.glob("voices/*")) == kept


def test_deleted_folder_of_voices_is_made_again(server, voices_dir):
    shutil.rmtree(voices_dir)
    assert len(spoken(server, SpeechRequest(TEXT, reference(180), seed=2)))
    assert len(list(voices_dir.glob("voices/*.safetensors"))) == 1


def test_many_clients_with_different_voices_get_their_own_audio(server):
    requests = [
        SpeechRequest(f"Number {index}.", reference(110 + 30 * (index % 4)), seed=index, max_tokens=40)
        for index in range(32)
    ]
    with ThreadPoolExecutor(32) as pool:
        together = list(pool.map(lambda request: spoken(server, request), requests))
    for index in range(0, 32, 3):
        assert_same_audio(together[index], spoken(server, requests[index]))


def test_cancelling_after_the_first_chunk_frees_every_stage(server, metric, eventually):
    async def cancel_after_one() -> None:
        async with AsyncSpeechClient(server.grpc_url, timeout_s=TIMEOUT_S) as listener:
            request = SpeechRequest("This is a rather long sentence, so that there is time. " * 60, seed=1)
            async with contextlib.aclosing(listener.speak(request)) as chunks:
                async for _ in chunks:
                    break

    def cancelled() -> float:
        return metric(server, "cosyvoice_requests_total", model="cosyvoice2", ending="cancelled")

    before = cancelled()
    for _ in range(4):
        asyncio.run(cancel_after_one())
    eventually(lambda: cancelled() == before + 4)
    eventually(lambda: idle(server, metric))
    assert len(spoken(server, SpeechRequest(TEXT, seed=1)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": " \n "}, "target_text"),
        ({"text": "x " * 3000}, "target_text: '6000 characters' is not accepted; at most 5000"),
        (
            {"voice": "nobody"},
            "expected the name or key of a voice that is kept here, or a speaker: default",
        ),
        ({"speed": 3.0}, "speed: 3.0 is not accepted"),
        ({"seed": -1}, "seed: -1"),
        ({"top_p": 2.0}, "top_p: 2.0"),
        ({"temperature": 0.0}, "temperature: 0.0"),
        ({"sampling_strategy": "beam"}, "sampling_strategy: 'beam'"),
        ({"max_tokens": 0}, "max_tokens: 0"),
        (
            {"reference": Reference(np.zeros(16_000, np.float32), text="x")},
            "reference_wav: 'a recording of silence",
        ),
        ({"reference": Reference(np.full(16_000, np.nan, np.float32), text="x")}, "reference_wav"),
        ({"reference": Reference(recording(150, 0.2), text="x")}, "'a recording of 0.20 s'"),
        ({"reference": Reference(recording(150, 31), text="x")}, "'a recording of 31.00 s'"),
        ({"reference": Reference(recording(150)[:1], text="x")}, "'a recording of 1 sample at 16000 Hz'"),
        ({"reference": Reference(20_000 * recording(150), text="x")}, "'a recording whose samples reach"),
        ({"reference": Reference(recording(150), text="")}, "reference_text"),
        ({"reference": reference(), "voice": "default"}, "voice: 'default' is not accepted; it can't be"),
        ({"instruct_text": "slowly", "cross_lingual": True}, "cross_lingual"),
        ({"language": "not a language"}, "language"),
        ({"language": "Exceeds maximum queue size"}, "language: 'Exceeds maximum queue size'"),
        ({"sampling_strategy": "UNAVAILABLE: it is unknown; x"}, "sampling_strategy: 'UNAVAILABLE: it is"),
    ],
)
def test_bad_request_gets_an_error_that_names_the_field(server, options, message):
    with pytest.raises(RefusedError) as caught:
        spoken(server, SpeechRequest(**({"text": TEXT} | options)))
    assert message in str(caught.value)
    assert caught.value.kind == "invalid_argument"
    assert "Traceback" not in str(caught.value)
    assert ".py" not in str(caught.value)


def test_invalid_utf8_is_refused_by_name(server):
    tensor = triton.InferInput("target_text", [1, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[b"\xff\xfe"]], np.object_))
    with triton.InferenceServerClient(server.grpc_url) as stranger, pytest.raises(Exception, match="UTF-8"):
        stranger.infer("cosyvoice2_offline", [tensor])


def test_requests_leave_no_memory_behind(server):
    request = SpeechRequest(TEXT, reference(), seed=4, max_tokens=50)

    def load(count: int) -> None:
        for _ in range(ALONE):
            spoken(server, request)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: spoken(server, request), range(count - ALONE)))

    load(LEAK_UTTERANCES)  # until the allocators have what eight utterances at a time need
    kept_mib = LEAK_UTTERANCES * spoken(server, request).nbytes / 2**20
    footprints = [footprint_mib(server)]
    for done in range(1, LEAK_ROUNDS + 1):
        load(LEAK_UTTERANCES)
        footprints.append(footprint_mib(server))
        if done >= 2 and footprints[-1] - footprints[-3] < LEAK_SHARE * 2 * kept_mib:
            return
    pytest.fail(f"MiB after each round: {footprints}; the waveforms of a round are {kept_mib:.0f} MiB")


def footprint_mib(server: Server) -> float:
    """Memory of the server and its models, and what lies in shared memory."""
    pids = subprocess.run(["pgrep", "-s", str(server.session)], capture_output=True, text=True).stdout.split()
    pages = sum(int(Path("/proc", pid, "statm").read_text().split()[1]) for pid in pids)
    own = Path("/dev/shm").glob(f"cosyvoice_{os.getpid()}_*")
    shared = sum(path.stat().st_blocks * 512 for path in own)
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20 + shared / 2**20


def test_clients_of_every_kind_lose_and_leave_nothing(server, capsys, monkeypatch):
    monkeypatch.setattr(soak, "SHARES", dict.fromkeys(soak.SHARES, 1))
    monkeypatch.setattr(soak, "SENTENCES", {"long": soak.SENTENCES["en_long"]})
    monkeypatch.setattr(soak, "SETTLE_S", 180.0)
    page = f"http://{server.metrics_url}/metrics"
    arguments = ["--url", server.grpc_url, "--metrics", page, "--clients", "6", "--minutes", "0.05"]
    status = soak.main([*arguments, "--seed", SEED_OF_SIX_FATES])
    printed = capsys.readouterr()
    assert (status, printed.err) == (0, "")
    assert all(re.search(rf"\d x {fate},", printed.out) for fate in soak.SHARES)


def test_stopping_under_load_loses_no_started_utterance(server):
    """It is the last one of this server."""
    request = SpeechRequest("A sentence that takes a moment to say. " * 3, seed=3)
    started = threading.Barrier(5, timeout=TIMEOUT_S)
    complete: list[bool] = []

    def listen() -> None:
        chunks = client(server).speak(request)
        reasons = [next(chunks).finish_reason]
        started.wait()
        reasons += [chunk.finish_reason for chunk in chunks]
        complete.append(reasons[-1] != "")

    threads = [threading.Thread(target=listen) for _ in range(4)]
    for thread in threads:
        thread.start()
    started.wait()
    server.stop()
    for thread in threads:
        thread.join()
    assert complete == [True] * 4
    assert server.drained
