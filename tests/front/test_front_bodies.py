"""Bodies that are too large, too slow, or grow when they are opened."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from io import BytesIO

import numpy as np
import pytest
import soundfile

from cosyvoice_front.errors import ApiError
from cosyvoice_front.recording import MAX_BYTES, read_recording
from fake_upstream import tone
from raw_http import ASKED, ask, connect, read_all, send

GET_HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEAD = b"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\n"


def sound(samples, rate, format, subtype=None):
    file = BytesIO()
    soundfile.write(file, samples, rate, format=format, subtype=subtype)
    return file.getvalue()


def test_hundred_megabytes_are_refused_by_their_announcement(front):
    with connect(front) as connection:
        connection.sendall(HEAD + b"Content-Length: 100000000\r\n\r\n")
        answer = read_all(connection)  # not a byte of the body has been sent
    assert answer.startswith(b"HTTP/1.1 413")
    assert b'"request_too_large"' in answer


def test_endless_body_is_refused_when_it_is_too_long(start_front):
    front = start_front(max_request_mib=1)
    with connect(front) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(17):
            connection.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        assert b"413" in connection.recv(4096)


def test_largest_body_is_taken(start_front):
    front = start_front(max_request_mib=1)
    body = json.dumps(ASKED).encode()
    assert send(front, body=body.ljust(1 << 20)).status == 200
    assert send(front, body=body.ljust((1 << 20) + 1)).status == 413


@pytest.mark.parametrize("length", ["-1", "abc", "1e3"])
def test_length_that_is_no_number_is_refused(front, length):
    with connect(front) as connection:
        connection.sendall(HEAD + b"Content-Length: %b\r\n\r\n" % length.encode())
        assert b" 400 " in connection.recv(4096).splitlines()[0]


def test_body_that_does_not_come_is_not_waited_for(start_front):
    front = start_front(arrival_timeout_s=0.1)
    with connect(front) as connection:
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 408")


def test_headers_that_do_not_come_are_not_waited_for(start_front):
    front = start_front(arrival_timeout_s=0.1)
    with connect(front) as silent, connect(front) as slow:
        slow.sendall(HEAD)
        assert read_all(silent) == b""
        assert read_all(slow) == b""


def test_headers_of_a_later_request_are_not_waited_for(start_front):
    front = start_front(arrival_timeout_s=1.0)
    with connect(front) as connection:
        connection.sendall(GET_HEALTH)
        assert b" 200 " in connection.recv(4096)
        connection.sendall(GET_HEALTH[:-2])
        assert read_all(connection) == b""


def test_empty_lines_do_not_keep_a_connection(start_front):
    front = start_front(arrival_timeout_s=1.0)
    with connect(front) as connection:
        connection.sendall(GET_HEALTH)
        assert b" 200 " in connection.recv(4096)
        connection.sendall(b"\r\n")
        assert read_all(connection) == b""


def test_rest_of_a_body_after_its_answer_is_not_waited_for(start_front, tmp_path):
    (tmp_path / "keys").write_text(f"anna sha256:{'0' * 64}\n")
    front = start_front(arrival_timeout_s=1.0, api_keys_file=tmp_path / "keys")
    with connect(front) as connection:
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        assert b" 401 " in connection.recv(4096)
        connection.sendall(b" ")
        assert read_all(connection) == b""


def test_connection_serves_one_request_after_another(front):
    with connect(front) as connection:
        for body in (b"", b" " * 100_000):
            head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
            for _ in range(2):
                connection.sendall(head + body)
                assert b" 200 " in connection.recv(4096)


def test_two_requests_in_one_piece_are_both_answered(front):
    with connect(front) as connection:
        connection.sendall(GET_HEALTH + GET_HEALTH[:-2] + b"Connection: close\r\n\r\n")
        assert read_all(connection).count(b" 200 ") == 2


HEADERS_END = b"\r\n\r\n"


@pytest.mark.parametrize(
    "begin",
    [b"GET /health HTTP/1.1\r\nX: ", b"GET /health?", b"GET /health HTTP/1.1\r\n" + b"X: 1\r\n" * 9999],
    ids=["one header", "address", "many headers"],
)
def test_headers_that_do_not_end_are_refused(front, begin):
    with connect(front) as connection:
        connection.sendall(begin.ljust((64 << 10), b"x")[: 64 << 10])
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"at most 64 KiB" in answer


def test_largest_headers_are_taken(front):
    with connect(front) as connection:
        head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: "
        connection.sendall(head.ljust((64 << 10) - len(HEADERS_END), b"x") + HEADERS_END)
        assert b" 200 " in read_all(connection)


def test_trailers_that_do_not_end_close_the_connection(front):
    answer = b""
    with connect(front) as connection, suppress(ConnectionError):  # closed before all of it was read
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nX: ")
        connection.sendall(b"x" * (128 << 10))
        answer = read_all(connection)
    assert answer == b""


def test_speech_may_take_longer_than_headers_and_body(start_front, upstream):
    import asyncio

    front = start_front(arrival_timeout_s=1.0)
    upstream.gates = asyncio.Semaphore(0)
    with connect(front) as connection:
        body = json.dumps({**ASKED, "response_format": "pcm"}).encode()
        connection.sendall(HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        first = connection.recv(65536)
        front.wait(asyncio.sleep(1.5))
        front.do(upstream.gates.release)
        assert (first + read_all(connection)).endswith(b"0\r\n\r\n")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (sound(np.zeros(24_000 * 3600, np.int16), 24_000, "FLAC"), "it is silent"),
        (sound(np.zeros((48_000, 8), np.int16), 48_000, "FLAC"), "8 channels"),
        (sound(np.zeros(700_000, np.int16), 655_350, "FLAC"), "655350 samples per second"),
        (sound(np.zeros(8_000, np.int16), 7_999, "WAV"), "7999 samples per second"),
        (sound(tone(31), 24_000, "WAV"), "31.00 s"),
        (b"RIFF" + b"\xff" * 100, "expected a wav"),
        (b"", "the file is empty"),
    ],
    ids=["an hour in a small flac", "channels", "rate", "low rate", "too long", "noise", "nothing"],
)
def test_recording_that_grows_or_is_none(data, says):
    assert len(data) < 10 << 20
    with pytest.raises(ApiError, match=says) as caught:
        read_recording(data, "Words.", "ref_audio")
    assert (caught.value.status, caught.value.param) == (400, "ref_audio")


def test_flac_whose_header_lies_gives_no_more_than_it_says():
    data = bytearray(sound(np.tile(tone(1), 600), 24_000, "FLAC"))
    total = 24_000 * 2  # 36 bits of the stream's information, from byte 21 on in the lower half
    data[22:26] = total.to_bytes(4, "big")
    data[21] &= 0xF0
    assert len(read_recording(bytes(data), "", "ref_audio").samples) == total


def test_too_much_base64_is_refused_before_it_is_decoded(front):
    answer = ask(front, ref_audio=base64.b64encode(bytes(MAX_BYTES + 10)).decode())
    assert (answer.status, answer.error["param"]) == (413, "ref_audio")


@pytest.mark.parametrize("rate", [16_000, 44_100, 48_000, 96_000])
def test_recording_is_brought_to_a_rate_that_the_server_reads(rate):
    reference = read_recording(sound(np.resize(tone(1), (2, rate)).T, rate, "WAV"), "Text.", "ref_audio")
    assert reference.rate == min(rate, 48_000)
    assert reference.samples.shape == (reference.rate,)
    assert reference.text == "Text."
