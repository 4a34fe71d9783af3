"""Speaks the passages of a book: with the networks of this process, or through a server."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from cosyvoice_client import request as client_request
from cosyvoice_client.captions import asked_files
from cosyvoice_client.delivery import tell
from cosyvoice_client.errors import RefusedError, UnavailableError
from cosyvoice_client.reference import read_reference
from cosyvoice_client.words import TimedWord
from cosyvoice_runtime.book.parts import Settings
from cosyvoice_runtime.book.reader import SpeechSource, Stretch
from cosyvoice_runtime.checkpoint import Layout
from cosyvoice_runtime.checkpoint.checksums import read_checksums, sha256_of
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.local import SpeechRequest
from cosyvoice_runtime.local.reading import front_end_of
from cosyvoice_runtime.local.speech_options import manner_of, named_voice, synthesizer_of, voice_of
from cosyvoice_runtime.onnx.memory import give_back_heap
from cosyvoice_runtime.text import TextFrontEnd
from cosyvoice_runtime.text.markup import MarkupOptions
from cosyvoice_runtime.voice.digest import content_hash

HOW = ("instruct", "cross_lingual", "language", "markup", "speed", "trim_silence", "sampling")
"""Options on which the sound of a text depends, besides voice, seed and networks."""
HERE = ("polyphones", "emoji", "code_blocks", "runtime", "dtype", "lookahead")
"""Further ones, of which a server has its own."""
NOT_OF_A_SERVER = (*HERE, "voices", "threads", "device", "published_prompt_rate")
TIMEOUT_S = 60.0
"""The longest silence of a server: that of the gRPC client's command."""
MOST_REFUSALS = 100
"""How often a full server is asked for one passage. Whoever comes back when it says has a turn, so that a few
times are enough."""
AWAY_S, MOST_LOSSES = 5.0, 12
"""Seconds before a lost server is asked again, and how often: a minute, in which it may start anew."""


class BookSource(SpeechSource, Protocol):
    """Speaks a book, and knows how.

    Attributes:
        front_end: prepares texts as they will be spoken.
        settings: what the sound depends on.
        estimate: why word times are an estimate; empty where that is not known before speaking.
    """

    front_end: TextFrontEnd
    settings: Settings
    estimate: str


class LibrarySource:
    """Speaks with the networks that the options name; threads and device change no more than the rounding.

    Raises:
        InvalidInput, CheckpointError: as :meth:`Synthesizer.from_checkpoint` and :class:`SpeechRequest`.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._synthesizer = synthesizer_of(options)
        self._voice = voice_of(options, self._synthesizer)
        self._find_voice = partial(named_voice, options, self._synthesizer)
        self._manner = manner_of(options)
        self._request("", 0)  # Errors of the options are found before anything is written.
        self.front_end = self._synthesizer.front_end
        is_estimate = self._synthesizer.word_method == "estimate"
        self.estimate = self._synthesizer.no_heads if is_estimate else ""
        self.settings: Settings = {
            **how(options),
            "voice": self._voice.key,
            "checkpoint": _weights_hash(Layout(options.checkpoint)),
            **{name: getattr(options, name) for name in HERE},
        }

    def speak(self, text: str, seed: int) -> Iterator[Stretch]:
        """Speak a text; each stretch is a segment of it."""
        for chunk in self._synthesizer.synthesize(self._request(text, seed), words=True):
            words = [TimedWord(*word) for word in chunk.words]
            yield Stretch(chunk.samples, chunk.sample_rate, words, chunk.words_by or "")
        give_back_heap()  # Texts of many lengths would leave ever more pieces that nothing fits.

    def _request(self, text: str, seed: int) -> SpeechRequest:
        find_voice = self._find_voice
        return SpeechRequest(
            text, self._voice, seed=seed, streaming=False, find_voice=find_voice, **self._manner
        )


class ServerSource:
    """Speaks through the gRPC port of a server, with a voice that it knows or with a reference.

    Raises:
        InvalidInput: an option is given of which the server has its own, the lexicon is none, or gRPC is
            missing.
        InvalidArgumentError: the reference can't be read, or the address is none.
    """

    estimate = ""

    def __init__(self, options: argparse.Namespace, defaults: argparse.ArgumentParser) -> None:
        for name in NOT_OF_A_SERVER:
            if getattr(options, name) != defaults.get_default(name):
                raise InvalidInput(name, getattr(options, name), "none beside --server, which has its own")
        if not all(map(find_spec, ("grpc", "tritonclient"))):
            raise InvalidInput(
                "server", options.server, "it needs gRPC: pip install -r requirements/client.txt"
            )
        from cosyvoice_client.grpc_client import SpeechClient

        self._client = SpeechClient(options.server, timeout_s=TIMEOUT_S)
        self._has_spoken = False
        self._reference = None
        if options.reference is not None:
            self._reference = read_reference(options.reference, options.reference_text)
        self._options, self._needs_words = options, bool(asked_files(options))
        markup = MarkupOptions(options.markup, options.emoji, options.code_blocks)
        self.front_end = front_end_of(None, options.lexicon, markup)
        self._lexicon = None if options.lexicon is None else options.lexicon.read_text("utf-8-sig")
        spoken_like = None if options.reference is None else sha256_of(options.reference)
        self.settings: Settings = {
            **how(options),
            "voice": options.voice,
            "reference": spoken_like,
            "reference_text": options.reference_text,
        }

    def speak(self, text: str, seed: int) -> Iterator[Stretch]:
        """Speak a text; a server that is full is asked again when it says, and one that was lost in a while.

        Raises:
            ClientError: the server can't be reached, fails, stays full or away; or captions are asked for,
                and it tells no words.
        """
        request = self._request(text, seed)
        for tries in count(1):
            try:
                stretches = list(self._spoken(request))
                break
            except UnavailableError as error:
                wait_s = error.retry_after_s
                if tries >= (MOST_LOSSES if wait_s is None else MOST_REFUSALS) or not self._is_there(error):
                    raise
                if not self._options.quiet and tries == 1:
                    tell(f"{error}; waiting")
                time.sleep(AWAY_S if wait_s is None else wait_s)
        self._has_spoken = True
        yield from stretches

    def _is_there(self, error: UnavailableError) -> bool:
        """Whether a server is behind the address, which has spoken, or has said when to come back."""
        return self._has_spoken or error.retry_after_s is not None

    def _spoken(self, request: client_request.SpeechRequest) -> Iterator[Stretch]:
        with closing(self._client.speak(request)) as chunks:
            for chunk in chunks:
                if not chunk.words_by and self._needs_words:
                    raise RefusedError("words were asked for, and the server told none")
                yield Stretch(chunk.samples, chunk.sample_rate, chunk.words, chunk.words_by)

    def _request(self, text: str, seed: int) -> client_request.SpeechRequest:
        options = self._options
        return client_request.SpeechRequest(
            text,
            self._reference,
            options.voice,
            options.instruct,
            options.language,
            options.markup,
            self._lexicon,
            cross_lingual=options.cross_lingual or None,
            speed=options.speed,
            seed=seed,
            sampling_strategy=options.sampling,
            trim_silence=options.trim_silence,
            words=True,
        )


def how(options: argparse.Namespace) -> dict[str, Any]:
    """The options on which the sound depends, by name; of a lexicon its content."""
    lexicon: Path | None = options.lexicon
    named = {name: getattr(options, name) for name in HOW}
    return {**named, "lexicon": None if lexicon is None else sha256_of(lexicon)}


def _weights_hash(layout: Layout) -> str:
    """Content hash of the weights of all networks: by the list ``SHA256SUMS``, else of the files."""
    listed = read_checksums(layout.directory)
    paths = [layout.weights("llm"), layout.weights("flow"), layout.weights("hift"), *layout.adapter]
    names = [str(path.relative_to(layout.directory)) for path in paths]
    return content_hash(
        *(listed.get(name) or sha256_of(path) for name, path in zip(names, paths, strict=True))
    )
