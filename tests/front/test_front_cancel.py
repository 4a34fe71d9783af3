"""Clients that leave: the server stops speaking, and nothing is left behind."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from fake_upstream import tone
from raw_http import ASKED, begin


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_leaving_after_the_first_audio_cancels(front, upstream, stream_format):
    upstream.gates = asyncio.Semaphore(0)
    with begin(front, stream_format=stream_format) as connection:
        assert b"200 OK" in connection.recv(4096)
    front.wait_until(lambda: upstream.cancelled == 1 and front.streams == 0)
    assert upstream.active == 0


def test_leaving_before_the_first_audio_cancels(front, upstream):
    upstream.chunks = [tone(0)] * 2  # the second waits, and nothing has been heard
    upstream.gates = asyncio.Semaphore(0)
    connection = begin(front)
    front.wait_until(lambda: upstream.active == 1)
    connection.close()
    front.wait_until(lambda: upstream.cancelled == 1 and front.streams == 0)


def test_openai_client_that_stops_reading_cancels(front, client, upstream):
    upstream.gates = asyncio.Semaphore(0)
    with client.audio.speech.with_streaming_response.create(**ASKED) as response:
        next(response.iter_bytes())
    front.wait_until(lambda: upstream.cancelled == 1)


def test_many_that_leave_leave_nothing_behind(front, upstream):
    upstream.gates = asyncio.Semaphore(0)
    connections = [begin(front) for _ in range(50)]
    for connection in connections:
        connection.recv(4096)
    before = front.do(lambda: len(asyncio.all_tasks()))
    for connection in connections:
        connection.close()
    front.wait_until(lambda: upstream.cancelled == 50 and front.streams == 0)
    front.wait_until(lambda: len(asyncio.all_tasks()) <= before - 50)


def test_client_that_does_not_read_is_given_up(start_front, upstream):
    front = start_front(stalled_client_timeout_s=0.1)
    upstream.chunks = [tone(60)] * 8  # more than the buffers of both sides hold
    with begin(front, response_format="pcm"):
        front.wait_until(lambda: upstream.cancelled == 1 and front.streams == 0)
        front.wait_until(lambda: front.connections == 0)


def test_others_go_on_when_one_leaves(front, upstream):
    upstream.gates = asyncio.Semaphore(0)
    leaving, staying = begin(front), begin(front)
    assert staying.recv(4096)
    leaving.close()
    front.wait_until(lambda: upstream.cancelled == 1)
    front.do(partial(upstream.gates.release))
    front.wait_until(lambda: upstream.active == 0)
    staying.close()
    assert upstream.cancelled == 1


def test_speech_in_progress_ends_before_the_front_does(start_front, upstream):
    front = start_front()
    upstream.gates = asyncio.Semaphore(0)
    connection = begin(front, response_format="pcm")
    data = connection.recv(4096)
    front.begin_stop()
    front.do(upstream.gates.release)
    while part := connection.recv(65536):
        data += part
    assert data.endswith(b"0\r\n\r\n")
    assert upstream.cancelled == 0
