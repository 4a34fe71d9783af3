"""Whatever dies, alone or together with something else, the server is back in service by itself."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from conftest import ALL_MODELS
from speaking import TEXT, assert_same_audio, outcome, reference
from supervised import PATIENCE_S, Supervised

from cosyvoice_client import ClientError, SpeechClient, SpeechRequest, UnavailableError

SERVICE_S = 60.0
"""Longest time without service, on a machine that starts the server in a third of it."""
STOPPED_S = 20.0
REQUEST = SpeechRequest(TEXT, voice="default", seed=1)
LONG = SpeechRequest(f"{TEXT} " * 60, voice="default", seed=1)


@pytest.fixture(scope="module")
def server(render_models, tmp_path_factory) -> Iterator[Supervised]:
    voices = tmp_path_factory.mktemp("voices")
    texts = {"cosyvoice2.voices_dir": voices, "token2wav.max_flow_pages": 64}
    repository = render_models(ALL_MODELS, **texts)
    with Supervised(repository, "server.max_restarts=100") as server:
        yield server


@pytest.fixture(scope="module")
def before(server) -> np.ndarray:
    """What the request sounds like as long as nothing has died."""
    return server.spoken(REQUEST)


def service_s(server: Supervised) -> float:
    return max(SERVICE_S, 3 * server.start_s)


def back(server: Supervised) -> int:
    return server.said(" is back after ") + server.said("all models answer")


def assert_serves(server: Supervised, before: np.ndarray, repairs: int) -> None:
    """It speaks in time, and everything that died has been brought back by then or soon after.

    A start of the whole server brings back all at once: it follows the death of an entry model that Triton
    has not yet seen the end of a request of.
    """
    starts = server.said("all models answer")
    assert_same_audio(server.spoken_within(REQUEST, service_s(server)), before)
    server.wait_for(
        lambda: back(server) >= repairs or server.said("all models answer") > starts, service_s(server)
    )
    assert_same_audio(server.spoken(REQUEST), before)


@pytest.mark.parametrize(
    "name", ["cosyvoice2", "cosyvoice2_offline", "tensorrt_llm", "token2wav", "tritonserver"]
)
def test_whatever_dies_alone_is_back_in_time(server, before, name):
    repairs = back(server) + 1
    server.signal(name)
    server.wait_for(lambda: server.said("is reloaded") or server.said("starting again"))
    assert_serves(server, before, repairs)


def test_server_that_dies_while_a_stage_is_loaded_again_is_back_in_time(server, before):
    repairs, reloads = back(server) + 1, server.said("token2wav is reloaded")
    server.signal("token2wav")
    server.wait_for(lambda: server.said("token2wav is reloaded") > reloads)
    server.signal("tritonserver")
    assert_serves(server, before, repairs)


@pytest.mark.parametrize("names", [("tensorrt_llm", "token2wav"), ("cosyvoice2", "token2wav")])
def test_two_models_that_die_together_are_back_in_time(server, before, names):
    repairs = back(server) + 2
    for name in names:
        server.signal(name)
    assert_serves(server, before, repairs)


def test_stage_that_stood_still_serves_again(server, before):
    server.signal("token2wav", signal.SIGSTOP)
    audio: list[np.ndarray] = []
    asking = threading.Thread(target=lambda: audio.append(server.spoken_within(REQUEST, service_s(server))))
    asking.start()
    asking.join(STOPPED_S)
    server.signal("token2wav", signal.SIGCONT)
    asking.join(service_s(server) + PATIENCE_S)
    assert_same_audio(audio[0], before)
    assert_same_audio(server.spoken_within(REQUEST, service_s(server)), before)


def killed_while_heard(server: Supervised, name: str) -> None:
    """Kill a process while somebody listens; the stream must end in a word that says what to do."""
    chunks = SpeechClient(server.grpc_url, timeout_s=PATIENCE_S).speak(LONG)
    next(chunks)
    server.signal(name)
    list(chunks)


def test_engine_that_dies_ends_what_was_heard_with_try_again(server, before):
    repairs = back(server) + 1
    with pytest.raises(UnavailableError, match="token2wav is being started again; try again later"):
        killed_while_heard(server, "token2wav")
    assert_serves(server, before, repairs)


def test_engine_that_dies_spoils_no_voice(server):
    """A new voice right after the death is an error or, when the engine is back by then, its own audio."""
    repairs, request = back(server) + 1, SpeechRequest(TEXT, reference(190), seed=1)
    server.signal("token2wav")
    first = outcome(server, request)
    after = server.spoken_within(request, service_s(server))
    if isinstance(first, ClientError):
        assert "token2wav" in str(first)
        assert "Traceback" not in str(first)
    else:
        assert_same_audio(first, after)
    server.wait_for(lambda: back(server) >= repairs, service_s(server))


def test_entry_model_that_dies_ends_its_streams(server, before):
    # Triton 2.51 itself aborts if the process dies while it holds the lock of their shared memory.
    deaths = "cosyvoice2 died with 1 requests in flight", "tritonserver ended by itself with exit code -6"
    repairs, before_it = server.said("all models answer") + 1, sum(map(server.said, deaths))
    with pytest.raises(UnavailableError):
        killed_while_heard(server, "cosyvoice2")
    server.wait_for(lambda: sum(map(server.said, deaths)) > before_it)
    server.wait_for(lambda: server.said("all models answer") >= repairs, service_s(server))
    assert_same_audio(server.spoken(REQUEST), before)


def not_heard_yet(server: Supervised, request: SpeechRequest, waits: Callable[[], bool]):
    """The audio of a request whose engine dies before the first chunk."""
    server.signal("token2wav", signal.SIGSTOP)
    audio: list[np.ndarray] = []
    listening = threading.Thread(target=lambda: audio.append(server.spoken(request)))
    listening.start()
    server.wait_for(waits)
    server.signal("token2wav")
    listening.join(service_s(server) + PATIENCE_S)
    return audio[0]


def test_utterance_that_nobody_heard_yet_starts_anew_unseen(server, before, metric):
    def waits() -> bool:
        return metric(server, "cosyvoice_inflight_utterances", model="cosyvoice2") == 1

    repairs = back(server) + 2
    assert_same_audio(not_heard_yet(server, REQUEST, waits), before)
    again = SpeechRequest(TEXT, reference(230), seed=1)
    audio = not_heard_yet(server, again, waits)
    assert_same_audio(audio, server.spoken(again))
    server.wait_for(lambda: back(server) >= repairs, service_s(server))
