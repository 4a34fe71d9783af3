"""Bodies over HTTP that would cost more than they weigh, and others beside them."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import time
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import brotli
import pytest
from aiohttp import ClientSession, web
from test_http_gateway import gateway_before

from cosyvoice_runtime.gateway import body_check
from cosyvoice_runtime.gateway.body_check import LONG_JSON_BYTES, BodyCheck, BodyQuestion, encoding_of, unpack
from cosyvoice_runtime.gateway.policy import RefusedError
from cosyvoice_runtime.gateway.request_check import MAX_MARKS
from cosyvoice_runtime.process import processes
from eventually import eventually

MIB = 2**20
BODY = b'{"inputs": []}'


def raw_deflate(body: bytes) -> bytes:
    packing = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packing.compress(body) + packing.flush()


PACKED = {
    "gzip": ("gzip", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "deflate without zlib's head": ("deflate", raw_deflate),
    "nothing": ("identity", bytes),
    "in capitals": ("GZIP", gzip.compress),
}


class Seen:
    """A server that remembers the bodies that reach it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        self.bodies.append(await request.read())
        return web.json_response({})


@asynccontextmanager
async def gateway(folder: Path, seen: Seen) -> AsyncIterator[tuple[ClientSession, str]]:
    async with gateway_before(seen, folder) as address, ClientSession() as client:
        yield client, f"http://{address}"


async def post(client: ClientSession, url: str, body: bytes, *encodings: str) -> tuple[int, str]:
    headers = [("Content-Encoding", encoding) for encoding in encodings]
    async with client.post(f"{url}/v2/models/m/infer", data=body, headers=headers) as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize("kind", PACKED)
def test_what_clients_of_triton_compress_is_unpacked(tmp_path: Path, kind: str):
    encoding, pack = PACKED[kind]

    async def ask() -> list[bytes]:
        seen = Seen()
        async with gateway(tmp_path, seen) as (client, url):
            assert (await post(client, url, pack(BODY), encoding))[0] == 200
        return seen.bodies

    assert asyncio.run(ask()) == [BODY]


REFUSED = {
    "brotli": (400, ["br"], brotli.compress(BODY)),
    "zstandard": (400, ["zstd"], BODY),
    "twice": (400, ["gzip, gzip"], gzip.compress(gzip.compress(BODY))),
    "in two headers": (400, ["gzip", "deflate"], zlib.compress(gzip.compress(BODY))),
    "not compressed": (400, ["gzip"], BODY),
    "cut off": (400, ["gzip"], gzip.compress(BODY)[:-1]),
    "empty": (400, ["gzip"], b""),
    "two in one": (400, ["gzip"], gzip.compress(BODY) * 2),
    "one byte too large": (413, ["gzip"], gzip.compress(BODY + b" " * (MIB - len(BODY) + 1))),
    "too large as it is": (413, [], bytes(MIB + 1)),
}


def test_other_bodies_are_refused_by_their_reason_and_reach_nobody(tmp_path: Path):
    async def ask() -> tuple[dict[str, tuple[int, str]], list[bytes]]:
        seen = Seen()
        async with gateway(tmp_path, seen) as (client, url):
            answers = {
                kind: await post(client, url, body, *said) for kind, (_, said, body) in REFUSED.items()
            }
        return answers, seen.bodies

    answers, bodies = asyncio.run(ask())
    assert {kind: status for kind, (status, _) in answers.items()} == {
        kind: status for kind, (status, _, _) in REFUSED.items()
    }
    error = json.loads(answers["brotli"][1])["error"]
    assert error == ("Content-Encoding: 'br' is not accepted; one of identity, gzip, deflate is expected")
    assert str(MIB) in answers["one byte too large"][1]
    assert bodies == []


def test_unpacking_a_bomb_takes_no_more_than_the_limit():
    bomb = gzip.compress(bytes(256 * MIB), 9)
    assert len(bomb) < MIB
    began = time.thread_time()
    with pytest.raises(RefusedError, match=f"body: larger than {MIB} bytes, the limit"):
        unpack(bomb, "gzip", MIB)
    took = time.thread_time() - began
    began = time.thread_time()
    zlib.decompress(bomb, 31)
    assert took < (time.thread_time() - began) / 10


def test_body_as_large_as_the_limit_is_unpacked():
    assert unpack(gzip.compress(bytes(MIB)), "gzip", MIB) == bytes(MIB)


@pytest.mark.parametrize("headers", [[], [""], ["identity"], [" Identity "]])
def test_body_may_be_said_to_be_as_it_is(headers: list[str]):
    assert encoding_of(headers) is None


def test_six_bombs_at_once_keep_nobody_waiting(tmp_path: Path):
    """Each unpacks to 256 MiB, which takes a tenth of a second or more."""
    bombs = [
        ("gzip", gzip.compress(bytes(256 * MIB), 9)),
        ("br", brotli.compress(bytes(256 * MIB), quality=5)),
    ]

    async def check() -> None:
        seen = Seen()
        async with gateway(tmp_path, seen) as (client, url):
            for encoding, bomb in bombs:
                asked = [asyncio.create_task(post(client, url, bomb, encoding)) for _ in range(6)]
                async with client.get(f"{url}/v2/health/live") as answer:
                    assert answer.status == 200
                statuses = {status for status, _ in await asyncio.gather(*asked)}
                assert statuses == {413 if encoding == "gzip" else 400}
        assert seen.bodies == [b""] * len(bombs)

    asyncio.run(check())


def long_infer(count: int) -> bytes:
    tensor = {"name": "x", "shape": [count], "datatype": "FP32", "data": [0.5] * count}
    return json.dumps({"inputs": [tensor]}).encode()


def test_long_json_is_read_beside_the_loop_and_passed_on_as_it_came(tmp_path: Path):
    body = long_infer(100_000)

    async def ask() -> tuple[int, list[bytes]]:
        seen = Seen()
        async with gateway(tmp_path, seen) as (client, url):
            status, _ = await post(client, url, body)
        return status, seen.bodies

    assert asyncio.run(ask()) == (200, [body])


NAMED = {"X-Request-Id": "call-7"}


def test_long_generate_says_who_asks(tmp_path: Path):
    asked = {"reference_wav": [0.5] * 100_000, "x-call-id": "mine"}

    async def ask() -> dict[str, object]:
        seen = Seen()
        async with gateway(tmp_path, seen) as (client, url):
            path, headers = f"{url}/v2/models/m/generate_stream", {"X-Client-Id": "me", **NAMED}
            async with client.post(path, json=asked, headers=headers) as answer:
                await answer.read()
        return json.loads(seen.bodies[0])

    said = asyncio.run(ask())
    assert len(str(said.pop("x-call-id"))) == 32
    assert said == {"reference_wav": asked["reference_wav"], "x-client-id": "me", "x-request-id": "call-7"}


LONG_AND_WRONG = {
    "lists": (b'{"inputs": [' + b"[]," * 300_000 + b"[]]}", f"at most {MAX_MARKS}"),
    "objects": (b'{"inputs": [' + b"{}," * 300_000 + b"{}]}", f"at most {MAX_MARKS}"),
    "keys": (b"{" + b'"a":1,' * 150_000 + b'"b":1}', f"at most {MAX_MARKS}"),
    "inputs": (b'{"inputs": [' + b"1," * 400_000 + b"1]}", "at most 64"),
    "no end": (b'{"inputs": [' + b"1," * 400_000, "a JSON object is expected"),
    "text": (b'{"id": "' + b"a" * 900_000 + b'"}', "at most 256 characters"),
}


@pytest.mark.parametrize("kind", LONG_AND_WRONG)
def test_long_json_that_is_wrong_is_refused_with_its_reason(tmp_path: Path, kind: str):
    body, reason = LONG_AND_WRONG[kind]

    async def ask() -> tuple[int, str]:
        async with gateway(tmp_path, Seen()) as (client, url):
            return await post(client, url, body)

    status, text = asyncio.run(ask())
    assert (status, reason in json.loads(text)["error"]) == (400, True)
    assert len(text) < 300


def test_page_of_a_browser_is_refused_and_who_names_none_is_served(tmp_path: Path):
    async def ask() -> list[int]:
        async with gateway(tmp_path, Seen()) as (client, url):
            path, statuses = f"{url}/v2/models/m/infer", []
            for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "our.name"}, {}):
                said = {"Content-Type": "text/plain"} | headers
                async with client.post(path, data=BODY, headers=said) as answer:
                    statuses.append(answer.status)
        return statuses

    assert asyncio.run(ask()) == [403, 403, 200, 200]


def test_bodies_that_wait_to_be_read_are_counted(tmp_path: Path):
    long = gzip.compress(b'{"inputs": [' + b" " * (MIB - 100) + b"]}")

    async def ask() -> list[int]:
        async with gateway(tmp_path, Seen()) as (client, url):
            answers = await asyncio.gather(*(post(client, url, long, "gzip") for _ in range(4)))
            later = await post(client, url, long, "gzip")
        return sorted(status for status, _ in [*answers, later])

    # One has room; it is given back.
    assert asyncio.run(ask()) == [200, 200, 503, 503, 503]


def test_long_body_whose_client_has_left_is_not_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    reader = tmp_path / "python"
    reader.write_text("#!/bin/sh\nexec sleep 600\n")
    reader.chmod(0o755)
    monkeypatch.setattr(body_check.sys, "executable", str(reader))

    def readers() -> list[int]:
        mine = (each for each in processes.living() if each.parent == os.getpid())
        return [each.pid for each in mine if "sleep" in each.command]

    async def ask_and_leave() -> None:
        question = BodyQuestion("m", True, None, {})
        asking = asyncio.create_task(BodyCheck().check(question, bytes(LONG_JSON_BYTES + 1)))
        await asyncio.to_thread(eventually, readers)
        asking.cancel()
        await asyncio.wait([asking])
        await asyncio.to_thread(eventually, lambda: not readers())

    asyncio.run(ask_and_leave())
