#!/usr/bin/env python3
"""Speak a text through a server's gRPC port, chunk by chunk.

    python client/grpc_client.py --text "Hello there." -o hello.wav
    python client/grpc_client.py --text "Hello there." --play
    python client/grpc_client.py --text - --reference me.wav --reference-text "What I say there." -o - | ...

FILE ends in .wav, .flac or .raw (16-bit little-endian samples at 24 kHz, which is what - writes to standard
output). Without --output and --play the speech goes to speech.wav. Ctrl-C cancels the request on the server;
the file then holds what had arrived.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing

from cosyvoice_client import SpeechClient
from cosyvoice_client.command import deliver, request_parser, run, speech_request
from cosyvoice_client.request import STREAMING_MODEL


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = request_parser(__doc__, "localhost:8001", STREAMING_MODEL, timeout_s=60)
    parser.add_argument("--play", action="store_true", help="play while receiving")
    options = parser.parse_args(arguments)
    output = options.output or (None if options.play else "speech.wav")

    def speak() -> None:
        client = SpeechClient(options.url, options.model, options.timeout)
        with closing(client.speak(speech_request(options))) as chunks:
            deliver(chunks, output, play=options.play, quiet=options.quiet)

    return run(speak)


if __name__ == "__main__":
    sys.exit(main())
