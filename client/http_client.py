#!/usr/bin/env python3
"""Speak a text through a server's HTTP port, each text at once when it has all been spoken.

    python client/http_client.py --server-url localhost:8000 --text "Hello there." -o hello.wav
    python client/http_client.py --text - --play < story.txt

FILE's ending says its format; all but wav, flac and raw need PyAV.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from cosyvoice_client import AudioChunk, SpeechRequest
from cosyvoice_client.command import request_parser, run, speak
from cosyvoice_client.http_client import HttpSpeechClient
from cosyvoice_client.request import OFFLINE_MODEL


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = request_parser(__doc__, "localhost:8000", OFFLINE_MODEL, timeout_s=300).parse_args(arguments)

    def speak_whole() -> None:
        client = HttpSpeechClient(options.url, options.model, options.timeout)

        def utter(request: SpeechRequest) -> Iterator[AudioChunk]:
            yield client.synthesize(request)

        speak(options, utter)

    return run(speak_whole)


if __name__ == "__main__":
    sys.exit(main())
