#!/usr/bin/env python3
"""Speak a text through a server's HTTP port, the whole utterance at once.

    python client/http_client.py --server-url localhost:8000 --text "Hello there." -o hello.wav

FILE ends in .wav, .flac or .raw (16-bit little-endian samples at 24 kHz, which is what - writes to standard
output); without --output it is speech.wav.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cosyvoice_client.command import deliver, request_parser, run, speech_request
from cosyvoice_client.http_client import HttpSpeechClient
from cosyvoice_client.request import OFFLINE_MODEL


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = request_parser(__doc__, "localhost:8000", OFFLINE_MODEL, timeout_s=300)
    options = parser.parse_args(arguments)

    def speak() -> None:
        client = HttpSpeechClient(options.url, options.model, options.timeout)
        chunk = client.synthesize(speech_request(options))
        deliver([chunk], options.output or "speech.wav", quiet=options.quiet)

    return run(speak)


if __name__ == "__main__":
    sys.exit(main())
