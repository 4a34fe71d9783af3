#!/usr/bin/env python3
"""Speak a text through a server's gRPC port, chunk by chunk.

    python client/grpc_client.py --text "Hello there." -o hello.wav
    python client/grpc_client.py --text "Hello there." --play
    tail -f story.txt | python client/grpc_client.py --text - --play -o story.mp3

FILE's ending says its format; all but wav, flac and raw need PyAV. Ctrl-C cancels the request on the server;
the file then holds what had arrived.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cosyvoice_client import SpeechClient
from cosyvoice_client.command import request_parser, run, speak
from cosyvoice_client.request import STREAMING_MODEL


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = request_parser(__doc__, "localhost:8001", STREAMING_MODEL, timeout_s=60).parse_args(arguments)
    return run(lambda: speak(options, SpeechClient(options.url, options.model, options.timeout).speak))


if __name__ == "__main__":
    sys.exit(main())
