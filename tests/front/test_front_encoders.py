"""Encoders: what a listener can decode, and when."""

from __future__ import annotations

import asyncio
import gc
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from io import BytesIO
from itertools import accumulate

import av
import numpy as np
import pytest

from cosyvoice_client import SAMPLE_RATE, AudioChunk
from cosyvoice_client.encoders import FORMATS, LAWS, MARK, RATES, PcmEncoder, is_instant, make_encoder
from cosyvoice_front.levelled import make_speech_encoder
from cosyvoice_front.spoken import Tally, encoded
from decoded import DELAY_SAMPLES, FRAME_SAMPLES, decode
from eventually import eventually
from fake_upstream import tone

HELD_SECONDS = {
    "mp3": 0.044,
    "opus": 0.026,
    "aac": 0.080,
    "flac": 0.020,
    "wav": 0.0,
    "pcm": 0.0,
} | dict.fromkeys(LAWS, 0.0)
"""Seconds of what has been fed that a listener can't decode yet, at most."""


def pieces(format, samples, step=480, rate=SAMPLE_RATE):
    encoder = make_encoder(format, rate)
    fed = [encoder.feed(samples[start : start + step]) for start in range(0, len(samples), step)]
    return [*fed, encoder.finish()]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("step", [480, 7001])
def test_file_is_as_long_as_the_speech_to_a_frame(format, step):
    samples = tone(1.7)[:-11]
    heard = decode(b"".join(pieces(format, samples, step)), format)
    assert 0 <= len(heard) - len(samples) < FRAME_SAMPLES[format]


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_heard_is_what_was_said(format):
    samples = tone(1.0)
    heard = decode(b"".join(pieces(format, samples)), format)[: len(samples)]
    middle = slice(4800, 19_200)
    assert np.corrcoef(heard[middle], samples[middle])[0, 1] > 0.98


@pytest.mark.parametrize("format", FORMATS)
def test_little_is_held_back(format):
    samples = tone(1.2)
    files = list(accumulate(pieces(format, samples)))[:-1]
    for count in (10, 30, 55):  # pieces of 20 ms fed
        playable = len(decode(files[count - 1], format)) + DELAY_SAMPLES.get(format, 0)
        held = 480 * count - playable + 1  # the resampler of the test may round
        assert held / SAMPLE_RATE <= HELD_SECONDS[format] + 0.001


@pytest.mark.parametrize(("format", "rate"), [(name, rate) for name in FORMATS for rate in RATES[name]])
@pytest.mark.parametrize("target_lufs", [None, -20.0])
def test_no_more_is_held_back_than_the_encoder_says(format, rate, target_lufs):
    samples, file = tone(1.0), b""
    encoder = make_speech_encoder(format, rate, target_lufs)
    for start in range(0, len(samples), 480):
        file += encoder.feed(samples[start : start + 480])
        if start % 4_800 == 4_320 and start > 4_800:
            playable_s = (len(decode(file, format, rate)) + DELAY_SAMPLES.get(format, 0)) / rate
            assert (start + 480) / SAMPLE_RATE - playable_s <= encoder.behind_s + 0.001
    assert encoder.behind_s < 0.4
    encoder.close()


@pytest.mark.parametrize("format", FORMATS)
def test_no_speech_is_an_empty_file(format):
    data = b"".join(pieces(format, tone(0)))
    if format == "wav":
        assert data.startswith(b"RIFF")
    elif format in ("pcm", "mp3", "aac"):
        assert len(data) < 1000


@pytest.mark.parametrize("format", ["opus", "flac", "wav"])
def test_formats_that_carry_words_are_marked(format):
    with av.open(BytesIO(b"".join(pieces(format, tone(0.2))))) as container:
        metadata = {**container.metadata, **container.streams[0].metadata}
    assert metadata["comment"] == MARK


@pytest.mark.parametrize(("format", "rate"), [(name, rate) for name in FORMATS for rate in RATES[name]])
def test_every_rate_that_is_offered_is_made(format, rate):
    data = b"".join(pieces(format, tone(0.5), rate=rate))
    heard = decode(data, format, rate)
    frame = {"mp3": 1152, "aac": 1024, "opus": rate // 50, "flac": 480}.get(format, 2)
    assert 0 <= len(heard) - rate // 2 <= 2 * frame


def test_wav_is_read_by_the_standard_library():
    import wave

    samples = tone(0.3)
    with wave.open(BytesIO(b"".join(pieces("wav", samples)))) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (SAMPLE_RATE, 1, 2)
        assert len(file.readframes(len(samples) + 1)) == 2 * len(samples)


@pytest.mark.parametrize("format", FORMATS)
def test_closed_encoder_leaves_no_thread_and_no_file_open(format):
    def held():
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    make_encoder(format, 24_000).close()
    gc.collect()
    before = held()
    gc.disable()
    try:
        for _ in range(4):
            encoder = make_encoder(format, 24_000)
            encoder.feed(np.zeros(4800, np.float32))
            encoder.close()
            del encoder
        # A thread may be listed for a moment after its end, and those of earlier tests may go meanwhile.
        eventually(lambda: all(now <= then for now, then in zip(held(), before, strict=True)))
    finally:
        gc.enable()


def test_encoder_of_a_stream_that_is_given_up_is_closed():
    class HeldEncoder(PcmEncoder):
        closed = False

        def close(self):
            self.closed = True

    async def two_chunks():
        yield AudioChunk(np.ones(10, np.float32), 0.0)
        yield AudioChunk(np.ones(10, np.float32), 0.0)

    async def give_up(encoder, pool):
        async with aclosing(encoded(two_chunks(), lambda: encoder, pool, Tally())) as pieces:
            await anext(pieces)

    encoder = HeldEncoder()
    with ThreadPoolExecutor(1) as pool:
        asyncio.run(give_up(encoder, pool))
    assert encoder.closed


@pytest.mark.parametrize("format", FORMATS)
def test_instant_encoders_are_known_before_they_are_made(format):
    for rate in RATES[format]:
        encoder = make_encoder(format, rate)
        assert encoder.instant == is_instant(format, rate)
        encoder.close()


def test_instant_encoder_needs_no_thread():
    async def chunks():
        yield AudioChunk(tone(0.2), 0.0)

    async def file():
        pool = ThreadPoolExecutor(1)
        pool.shutdown()  # It takes nothing any more.
        made = encoded(chunks(), lambda: make_encoder("pcm", SAMPLE_RATE), pool, Tally(), instant=True)
        return b"".join([piece async for piece in made])

    assert asyncio.run(file()) == b"".join(pieces("pcm", tone(0.2)))
