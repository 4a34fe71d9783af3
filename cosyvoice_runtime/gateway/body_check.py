"""The check of a JSON body; a long one is checked in its own process, so that no other request waits.

``python -m cosyvoice_runtime.gateway.body_check`` is that process. It reads a line with a
:class:`BodyQuestion` and the body, and writes a line with the facts of the request and a body.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
import zlib
from dataclasses import dataclass
from typing import Any

from cosyvoice_runtime.gateway.policy import RefusedError, invalid
from cosyvoice_runtime.gateway.request_check import UtteranceRequest, check_generate, check_http
from cosyvoice_runtime.process.headers import CLIENT_HEADER, ELSEWHERE_HEADER

ENCODINGS = ("gzip", "deflate")
"""The encodings that Triton's clients use."""
AS_IT_IS = "identity"
WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
BARE_WINDOW_BITS = -zlib.MAX_WBITS
"""The window of ``deflate`` without a zlib header, as some clients send it."""
ZLIB_METHOD = 8
"""The lower half of a zlib stream's first byte."""


def encoding_of(headers: list[str]) -> str | None:
    """The encoding that the ``Content-Encoding`` headers name, which must be known; None without
    compression."""
    said = ",".join(headers).strip().lower()
    if said in ("", AS_IT_IS):
        return None
    if said not in ENCODINGS:
        raise invalid("Content-Encoding", said, f"one of {', '.join((AS_IT_IS, *ENCODINGS))} is expected")
    return said


def unpack(body: bytes, encoding: str, limit: int) -> bytes:
    """Decompress a body in the memory and time of ``limit`` bytes, holding Python's lock briefly.

    Raises:
        RefusedError: the body is larger, damaged or incomplete.
    """
    bare = encoding == "deflate" and body[:1] and body[0] & 15 != ZLIB_METHOD
    unpacking = zlib.decompressobj(BARE_WINDOW_BITS if bare else WINDOW_BITS[encoding])
    try:
        unpacked = unpacking.decompress(body, limit + 1)
    except zlib.error as error:
        raise _broken(str(error)) from None
    if len(unpacked) > limit:
        raise RefusedError("RESOURCE_EXHAUSTED", f"body: larger than {limit} bytes, the limit")
    if not unpacking.eof:
        raise _broken("incomplete")
    if unpacking.unused_data:
        raise _broken(f"{len(unpacking.unused_data)} bytes after its end")
    return unpacked


def _broken(reason: str) -> RefusedError:
    return invalid("body", reason, "one whole body in its encoding is expected")


LONG_JSON_BYTES = 262_144
"""Python needs some ten milliseconds to parse a body of this size, and does nothing else meanwhile."""
PROCESSES = 2
"""The most checking processes at a time; further long bodies wait."""
REFUSED = "refused"


@dataclass(frozen=True)
class BodyQuestion:
    """A body's destination, by which it is checked.

    Attributes:
        model: the model that the request is for.
        whole: True for ``infer``, False for ``generate`` and ``generate_stream``.
        header_bytes: length of the JSON before binary tensors; None if there are none.
        said: parameters that the gateway adds for the model.
    """

    model: str
    whole: bool
    header_bytes: int | None
    said: dict[str, str]

    def check(self, body: bytes) -> tuple[bytes, UtteranceRequest]:
        """The body for the server, and the facts of its request; a RefusedError names a field."""
        client, elsewhere = self.said.get(CLIENT_HEADER), ELSEWHERE_HEADER in self.said
        if self.whole:
            checked = check_http(body, self.header_bytes)
            facts = UtteranceRequest.of_infer(self.model, checked, client)
        else:
            asked = check_generate(body)
            # tritonserver passes no headers to the model for these requests.
            body = json.dumps(asked | self.said).encode()
            facts = UtteranceRequest.of_generate(self.model, asked, client)
        return body, dataclasses.replace(facts, elsewhere=elsewhere)


class BodyCheck:
    """Checks bodies for one event loop."""

    def __init__(self) -> None:
        self._free_processes = asyncio.Semaphore(PROCESSES)

    async def check(self, question: BodyQuestion, body: bytes) -> tuple[bytes, UtteranceRequest]:
        """Check a body as :meth:`BodyQuestion.check` does, in a process if it is long."""
        length = len(body) if question.header_bytes is None else question.header_bytes
        if min(length, len(body)) <= LONG_JSON_BYTES:
            return question.check(body)
        async with self._free_processes:
            answer = await _ask_process(question, body)
        line, _, changed = answer.partition(b"\n")
        if not line:
            raise RefusedError("UNAVAILABLE", "no memory is left to read this body; try again in 5 s")
        found = json.loads(line)
        if REFUSED in found:
            raise RefusedError(*found[REFUSED])
        return changed or body, UtteranceRequest(**found)


async def _ask_process(question: BodyQuestion, body: bytes) -> bytes:
    line = json.dumps(dataclasses.asdict(question)).encode() + b"\n"
    # The body is passed as a file in memory; through a pipe this loop would have to copy it.
    with open(os.memfd_create("body"), "w+b") as said:
        await asyncio.to_thread(said.writelines, (line, body))
        said.seek(0)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", __name__), stdin=said, stdout=asyncio.subprocess.PIPE
        )
    try:
        answer, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return answer


def _answer(line: bytes, body: bytes) -> tuple[dict[str, Any], bytes]:
    try:
        changed, asked = BodyQuestion(**json.loads(line)).check(body)
    except RefusedError as refusal:
        return {REFUSED: (refusal.status, str(refusal))}, b""
    return dataclasses.asdict(asked), b"" if changed is body else changed


def main() -> None:
    found, changed = _answer(sys.stdin.buffer.readline(), sys.stdin.buffer.read())
    sys.stdout.buffer.write(json.dumps(found).encode() + b"\n" + changed)


if __name__ == "__main__":
    main()
