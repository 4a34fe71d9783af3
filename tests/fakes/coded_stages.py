"""A speech LM that says given groups of tokens, and a token2wav that writes each token as 960 samples."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import numpy as np

from cosyvoice_runtime.engine.utterance.streamed_text import alongside
from cosyvoice_runtime.engine.utterance.utterance import TokenGroup, WaveSettings, speak
from cosyvoice_runtime.errors import StageLostError
from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.text_segment import SegmentQueue
from cosyvoice_runtime.voice.voice import Voice

TOKEN_SAMPLES = 960


class CodedStages:
    """
    Attributes:
        hold: while it is clear, no further group comes.
        wave_error: raised by every wave from the chunk of this number on.
        away: raised by `require`.
        one_is_lost: when it is set, a stage has ended.
        after_return: groups that follow once somebody has waited in `back`.
        per_text: tokens that are said for each id of a text that comes in pieces.
        said: all of those.
        spoken: what the last utterance was told to have been spoken.
        prepared: voices that were made ready, each with the number of chunks before.
        stopped, dropped: utterances whose generator was closed early, or that were to be forgotten.
    """

    def __init__(self, groups: list[TokenGroup | Exception]) -> None:
        self.groups = groups
        self.calls: list[tuple[list[int], bool]] = []
        self.calls_of: dict[str, list[tuple[list[int], bool]]] = defaultdict(list)
        self.sounds: list[WaveSettings] = []
        self.voices: list[Voice] = []
        self.cushions: list[float] = []
        self.prepared: list[tuple[str, int]] = []
        self.stopped: list[str] = []
        self.dropped: list[str] = []
        self.prompts: list[object] = []
        self.first_tokens: list[int] = []
        self.wave_error: Exception | None = None
        self.fails_from = 0
        self.away: Exception | None = None
        self.after_return: list[TokenGroup | Exception] | None = None
        self.per_text = 1
        self.said: list[int] = []
        self.spoken: list[list[int]] = []
        self.one_is_lost = asyncio.Event()
        self.hold = asyncio.Event()
        self.hold.set()

    def require(self):
        if self.away is not None:
            raise self.away

    async def lost(self):
        await self.one_is_lost.wait()
        raise StageLostError("token2wav")

    async def back(self):
        await asyncio.sleep(0)
        self.groups = self.after_return or self.groups

    def call(self, order, voices, spoken=()):
        """As `Engine.call`, with the driver in this event loop."""
        self.voices += voices.values()
        self.spoken = list(spoken)
        return CodedCall(self, order)

    def generate(self, prompt, sampling, utterance_id, first_tokens, pieces, with_rows):
        self.prompts.append((prompt, sampling))
        if pieces is not None:
            return self._spoken(pieces, utterance_id)
        return self._drawn(utterance_id, first_tokens)

    async def _drawn(self, utterance_id, first_tokens):
        self.first_tokens.append(first_tokens)
        ended = False
        try:
            for group in self.groups:
                if isinstance(group, Exception):
                    ended = True
                    raise group
                yield group
                await self.hold.wait()
                await asyncio.sleep(0)
            ended = True
        finally:
            if not ended:
                self.stopped.append(utterance_id)

    async def _spoken(self, pieces, utterance_id):
        ended = False
        try:
            while (ids := await pieces.get()) is not None:
                for _ in range(self.per_text * len(ids)):
                    self.said.append(len(self.said) % 1000)
                    yield TokenGroup(self.said[-1:])
                    await asyncio.sleep(0)
            ended = True
            yield TokenGroup([], FinishReason.STOP)
        finally:
            if not ended:
                self.stopped.append(utterance_id)

    async def wave(self, utterance_id, tokens, position, last, settings, cushion_s):
        await asyncio.sleep(0)
        if self.wave_error and len(self.calls) >= self.fails_from:
            raise self.wave_error
        assert position == sum(len(before) for before, _ in self.calls_of[utterance_id])
        self.calls.append((list(tokens), last))
        self.calls_of[utterance_id].append((list(tokens), last))
        self.sounds.append(settings)
        self.cushions.append(cushion_s)
        return self.samples_of(tokens)

    async def prepare(self, voice_key):
        self.prepared.append((voice_key, len(self.calls)))

    def samples_of(self, tokens):
        return np.repeat(np.array(tokens, np.float32), TOKEN_SAMPLES)

    def drop(self, utterance_id):
        self.dropped.append(utterance_id)


def sounding(tokens):
    """Samples of tokens, as `CodedStages.samples_of`: 0 is silent, any other as loud as speech."""
    loud = np.repeat(np.array(tokens) != 0, TOKEN_SAMPLES)
    return np.where(loud, np.resize(np.float32([0.1, -0.1]), len(loud)), np.float32(0))


def spoken_parts(utterance, parts, tokens, hop):
    """The chunks of an answer; its parts are segments of these tokens (None) and seconds of silence."""

    async def run():
        groups = [TokenGroup([token], drawn=[token]) for token in tokens]
        stages = CodedStages([*groups, TokenGroup([], FinishReason.STOP, drawn=[-1])])
        stages.samples_of = sounding
        segments = SegmentQueue()
        for part in parts:
            if part is None:
                segments.begin(Prompt([5]))
            else:
                segments.pause(part)
        segments.done()
        return [chunk async for chunk in speak(utterance, segments, stages, hop, 24_000, lambda: 0.0)]

    return asyncio.run(run())


class CodedCall(SegmentQueue):
    """An utterance that coded stages speak until one of them is lost."""

    def __init__(self, stages: CodedStages, order) -> None:
        super().__init__()
        self._stages, self._order = stages, order

    def chunks(self):
        order = self._order
        how = order.hop, order.sample_rate, lambda: 0.0, order.checks
        spoken = speak(order.utterance, self, self._stages, *how)
        return alongside(self._stages.lost(), spoken)
