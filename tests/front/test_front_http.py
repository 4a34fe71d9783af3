"""HTTP as it is spoken by clients of every age: upgrades to HTTP/2, HTTP/1.0, and connections used again."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import shutil
import subprocess
from io import BytesIO

import pytest

from cosyvoice_runtime.settings import FrontSettings
from raw_http import ASKED, ask, connect, read_all, send

SPEECH = json.dumps({**ASKED, "response_format": "pcm"}).encode()
H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\n"
HOST = b"Host: localhost\r\n"
LAST = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
JAVA = """
import java.net.URI;
import java.net.http.*;

class Ask {
    public static void main(String[] arguments) throws Exception {
        var client = HttpClient.newHttpClient();
        for (int number = 0; number < 2; number++) {
            var request = HttpRequest.newBuilder(URI.create(arguments[0]))
                .header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString(arguments[1])).build();
            var answer = client.send(request, HttpResponse.BodyHandlers.ofByteArray());
            System.out.println(answer.statusCode() + " " + answer.body().length);
        }
    }
}
"""


def posted(headers: bytes, body: bytes = SPEECH) -> bytes:
    return b"POST /v1/audio/speech HTTP/1.1\r\n%bContent-Length: %d\r\n%b\r\n%b" % (
        HOST,
        len(body),
        headers,
        body,
    )


def chunked(headers: bytes) -> bytes:
    head = b"POST /v1/audio/speech HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n%b\r\n" % (HOST, headers)
    return head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(SPEECH), SPEECH)


class Received(BytesIO):
    """What has come on a connection, as the answers of it are read."""

    def makefile(self, *_arguments: object) -> Received:
        return self

    def close(self) -> None:
        """Each answer closes what it was read from; the next one is behind it."""


def answers(front, *pieces: bytes) -> list[tuple[int, bytes]]:
    """Status and body of all that comes until the front closes; the last piece should ask for that."""
    with connect(front) as connection:
        for piece in pieces:
            connection.sendall(piece)
        received = Received(read_all(connection))
    found = []
    while received.tell() < len(received.getbuffer()):
        answer = http.client.HTTPResponse(received)
        answer.begin()
        found.append((answer.status, answer.read()))
    return found


@pytest.mark.parametrize(
    "upgrade",
    [H2C, H2C.upper(), b"Connection: upgrade\r\nUpgrade: TLS/1.2, websocket\r\n", b"Upgrade: h2c\r\n", b""],
    ids=["h2c", "upper case", "another", "without Connection", "none"],
)
@pytest.mark.parametrize("body", ["length", "chunked"])
def test_upgrade_is_ignored_and_one_request_is_one_answer(front, upstream, upgrade, body):
    asked = posted(upgrade) if body == "length" else chunked(upgrade)
    found = answers(front, asked + asked + LAST)
    assert [status for status, _ in found] == [200, 200, 200]
    assert found[0][1] == found[1][1] != b""
    assert len(upstream.requests) == 2


def test_post_that_names_a_websocket_is_answered(front):
    asked = posted(b"Connection: Upgrade, close\r\nUpgrade: websocket\r\n")
    assert [status for status, _ in answers(front, asked)] == [200]


def test_http_1_0_that_names_a_websocket_is_answered(front):
    asked = b"GET /tts/websocket HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert [status for status, _ in answers(front, asked)] == [404]


def test_body_of_an_upgrade_is_no_request_of_its_own(front, upstream):
    head, body = posted(H2C, posted(b"")).split(b"\r\n\r\n", 1)
    found = answers(front, head + b"\r\n\r\n", body, LAST)
    assert [status for status, _ in found] == [400, 200]
    assert upstream.requests == []


def test_upgrade_that_comes_byte_by_byte_is_ignored(front):
    asked = posted(H2C) + LAST
    found = answers(front, *(asked[place : place + 1] for place in range(len(asked))))
    assert [status for status, _ in found] == [200, 200]


def test_many_upgrades_in_one_piece_are_answered_in_turn(front):
    get = b"GET /health HTTP/1.1\r\n" + HOST + H2C + b"\r\n"
    assert [status for status, _ in answers(front, 300 * get + LAST)] == 301 * [200]


@pytest.mark.parametrize(
    "asked",
    [
        b"CONNECT elsewhere:443 HTTP/1.1\r\nHost: elsewhere\r\n\r\n",
        b"CONNECT elsewhere:443 HTTP/1.1\r\nHost: elsewhere\r\n" + H2C + b"\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=["CONNECT", "CONNECT with an upgrade", "HTTP/2 at once"],
)
def test_what_is_no_request_here_is_refused_and_closed(front, asked):
    assert [status for status, _ in answers(front, asked + posted(b""))] == [400]
    assert ask(front).status == 200


def test_headers_with_an_upgrade_are_as_large_as_any(front):
    head = b"GET /health HTTP/1.1\r\n" + HOST + H2C + b"Connection: close\r\nX: "
    assert answers(front, head.ljust((64 << 10) - 4, b"x") + b"\r\n\r\n")[0][0] == 200


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl_that_asks_for_http2_hears(front, tmp_path):
    heard = tmp_path / "heard"
    command = [
        "curl",
        "--silent",
        "--noproxy",
        "*",
        "--http2",
        "--output",
        heard,
        "--write-out",
        "%{http_code}",
    ]
    asking = ["--header", "Content-Type: application/json", "--data", SPEECH.decode()]
    url = f"{front.url}/v1/audio/speech"
    assert subprocess.check_output([*command, *asking, url]) == b"200"
    assert len(heard.read_bytes()) == 2 * len(front.upstream.samples)


@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK")
def test_javas_client_hears(front, tmp_path):
    source = tmp_path / "Ask.java"
    source.write_text(JAVA)
    url = f"{front.url}/v1/audio/speech"
    command = ["java", "-XX:TieredStopAtLevel=1", source, url, SPEECH.decode()]
    found = subprocess.check_output(command, text=True)
    assert found.splitlines() == [f"200 {2 * len(front.upstream.samples)}"] * 2


@pytest.mark.parametrize("connection", [b"", b"Connection: keep-alive\r\n", H2C])
def test_body_for_http_1_0_ends_with_the_connection(front, connection):
    with connect(front) as client:
        client.sendall(posted(connection).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        head, _, body = read_all(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"transfer-encoding" not in head.lower()
    assert b"connection: close" in head.lower()
    assert len(body) == 2 * len(front.upstream.samples)


def test_http_1_0_names_no_host(front):
    with connect(front) as client:
        client.sendall(b"GET /v1/models HTTP/1.0\r\n\r\n")
        assert read_all(client).startswith(b"HTTP/1.1 200 ")


def test_error_for_http_1_0_says_its_length(front):
    with connect(front) as client:
        client.sendall(posted(b"", b"{}").replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        head, _, body = read_all(client).partition(b"\r\n\r\n")
    assert b"content-length: %d" % len(body) in head.lower()
    assert json.loads(body)["error"]["param"] == "model"


def test_failure_of_a_speech_for_http_1_0_closes_early(front, upstream):
    upstream.error, upstream.error_after = RuntimeError("lost"), 1
    with connect(front) as client:
        client.sendall(posted(b"").replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        assert len(read_all(client).partition(b"\r\n\r\n")[2]) < 2 * len(upstream.samples)


def test_expected_100_continue_comes_before_the_body(front):
    with connect(front) as client:
        head, body = posted(H2C + b"Expect: 100-Continue\r\nConnection: close\r\n").split(b"\r\n\r\n", 1)
        client.sendall(head + b"\r\n\r\n")
        assert client.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert read_all(client).startswith(b"HTTP/1.1 200 ")


def test_connection_between_requests_outlives_those_of_proxies():
    assert FrontSettings().keep_alive_timeout_s == 75 > 60  # nginx's and most balancers' for a server


def test_idle_connection_is_closed_after_its_own_time_alone(start_front):
    patient = start_front(arrival_timeout_s=0.2, keep_alive_timeout_s=60)
    hasty = start_front(arrival_timeout_s=60, keep_alive_timeout_s=0.2)
    with connect(patient) as kept, connect(hasty) as closed:
        for connection in (kept, closed):
            connection.sendall(LAST.replace(b"Connection: close\r\n", b""))
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert read_all(closed) == b""
        patient.wait(asyncio.sleep(0.5))
        kept.sendall(LAST)
        assert read_all(kept).startswith(b"HTTP/1.1 200 ")


READ_PATHS = ["/", "/health", "/health/ready", "/metrics", "/test", "/v1/", "/v1/models", "/v1/audio/models"]


@pytest.mark.parametrize("path", [*READ_PATHS, "/v1/models/tts-1", "/v1/audio/voices"])
def test_head_is_get_without_the_body(front, path):
    got, headed = send(front, "GET", path), send(front, "HEAD", path)
    assert (headed.status, headed.body) == (200, b"")
    assert headed.headers["content-type"] == got.headers["content-type"]


def test_head_of_a_server_that_is_not_ready_is_503(front, upstream):
    upstream.is_ready = False
    assert send(front, "HEAD", "/health/ready").status == 503


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/audio/speech", "POST"),
        ("HEAD", "/v1/audio/speech", "POST"),
        ("PUT", "/v1/audio/voices", "GET, HEAD, POST"),
        ("POST", "/health", "GET, HEAD"),
        ("DELETE", "/metrics", "GET, HEAD"),
        ("GET", "/v1/audio/voices/mine", "DELETE"),
        ("GET", "/tts/bytes", "POST"),
    ],
)
def test_other_methods_are_told_which_are_served(front, method, path, allowed):
    answer = send(front, method, path)
    assert (answer.status, answer.headers["allow"]) == (405, allowed)
    assert answer.body == b"" or answer.error["code"] == "method_not_allowed"


@pytest.mark.parametrize("path", ["/v1/models/", "/v1/audio/voices/", "/v1/audio/speech/", "/health/"])
def test_slash_at_the_end_changes_nothing(front, path):
    method = "POST" if "speech" in path else "GET"
    assert send(front, method, path, SPEECH if method == "POST" else b"").status == 200


def test_description_of_the_routes_has_no_operation_twice(front):
    description = json.loads(send(front, "GET", "/openapi.json").body)
    operations = [
        operation["operationId"] for path in description["paths"].values() for operation in path.values()
    ]
    assert len(operations) == len(set(operations))
    assert "requestBody" in description["paths"]["/v1/audio/speech"]["post"]


def test_references_in_the_description_of_the_routes_lead_somewhere(front):
    body = send(front, "GET", "/openapi.json").body
    references = {name.decode() for name in re.findall(rb'"\$ref":"#/([^"]+)"', body)}
    assert any(name.endswith("TurnBody") for name in references)
    for name in references:
        part = json.loads(body)
        for step in name.split("/"):
            part = part[step.replace("~1", "/")]
        assert "type" in part, name
