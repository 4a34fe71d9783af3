"""The metrics of the entry models: latency, speed and ending of requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from types import TracebackType

from cosyvoice_runtime.audio.silence import SilenceGate
from cosyvoice_runtime.engine.utterance.request import AudioChunk
from cosyvoice_runtime.engine.utterance.utterance import Playback
from cosyvoice_runtime.errors import ClientGoneError, StageLostError, StageSilentError, status_of
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.metrics.metrics import REFUSED, REQUESTS, REQUESTS_ABOUT
from cosyvoice_runtime.serving.speech.capacity import Capacity

FIRST_AUDIO_S = (0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0)
LOOKUPS = {True: "hit", False: "miss"}
REAL_TIME_FACTORS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1.0, 1.5, 2.0, 5.0)


class Ending(Enum):
    """The ending of a request."""

    COMPLETED = "completed"
    INVALID = "invalid"
    REFUSED = REFUSED
    CANCELLED = "cancelled"
    FAILED = "failed"


ENDINGS = {"UNAVAILABLE": Ending.REFUSED, "INVALID_ARGUMENT": Ending.INVALID, "NOT_FOUND": Ending.INVALID}


def ending_of(error: BaseException | None) -> Ending:
    """The ending of a request that raised this error, or None."""
    if error is None:
        return Ending.COMPLETED
    if isinstance(error, ClientGoneError):
        return Ending.CANCELLED
    if isinstance(error, StageLostError | StageSilentError):
        return Ending.FAILED
    return ENDINGS.get(status_of(error), Ending.FAILED)


class SpeechMetrics:
    """The metrics of one entry model."""

    def __init__(
        self,
        metrics: Metrics,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.now = now
        self.inflight = metrics.gauge("cosyvoice_inflight_utterances", "Utterances in progress.")
        self.limit = metrics.gauge(
            "cosyvoice_max_inflight_utterances", "Utterances that may be in progress, entry models together."
        )
        self.speed = metrics.gauge(
            "cosyvoice_learned_speed", "Seconds of speech that the machine makes in a second, as learned."
        )
        self.first_audio = metrics.histogram(
            "cosyvoice_first_audio_seconds", "From a request to its first audio.", FIRST_AUDIO_S
        )
        self.first_audible = metrics.histogram(
            "cosyvoice_first_audible_seconds",
            "From a request to when a listener who plays from the first audio on hears speech.",
            FIRST_AUDIO_S,
        )
        about = "cosyvoice_trimmed_seconds_total", "Seconds of silence left out before and behind speech."
        self.trimmed = tuple(metrics.counter(*about, end=end) for end in ("start", "end"))
        self.real_time_factor = metrics.histogram(
            "cosyvoice_real_time_factor",
            "From a request to its last audio, by the seconds of audio; of completed ones.",
            REAL_TIME_FACTORS,
        )
        self.underruns = metrics.counter(
            "cosyvoice_underruns_total", "Pauses before chunks that came too late, more than 50 ms together."
        )
        self.audio_seconds = metrics.counter("cosyvoice_audio_seconds_total", "Seconds of speech sent.")
        self.redraws = metrics.counter(
            "cosyvoice_redrawn_segments_total", "Segments drawn again as their words were not said once."
        )
        self._endings = {
            ending: metrics.counter(REQUESTS, REQUESTS_ABOUT, ending=ending.value) for ending in Ending
        }
        about = "cosyvoice_voice_lookups_total", "References by whether their voice was known."
        self._stood_in = metrics.counter(
            "cosyvoice_unconfirmed_voices_total", "Uses of named voices whose bucket was away."
        )
        self._lookups = {hit: metrics.counter(*about, result=name) for hit, name in LOOKUPS.items()}

    def voice_looked_up(self, hit: bool) -> None:
        self._lookups[hit].add(1)

    def voice_stood_in(self) -> None:
        self._stood_in.add(1)

    def admits(self, capacity: Capacity) -> None:
        """Show the number of utterances that are admitted."""
        self.limit.set(capacity.limit)
        self.speed.set(capacity.speed)

    def ended(self, error: BaseException | None) -> None:
        """Count a request with this ending."""
        self._endings[ending_of(error)].add(1)


class RequestTimer:
    """The times of one request for the metrics; used in ``with`` while it is served.

    Args:
        playback: playback of the client, which learns of the audio from :meth:`sent`.
        text_whole: whether the text came with the request. Otherwise the client sets the pace of the text,
            and gaps and the real-time factor mean nothing.
    """

    def __init__(self, metrics: SpeechMetrics, playback: Playback, text_whole: bool = True) -> None:
        self._metrics = metrics
        self._text_whole = text_whole
        self._arrival = metrics.now()
        self._text_came = False
        self._unheard_s = self._spoken_s = 0.0
        self._gate: SilenceGate | None = None
        self._is_audible = False
        self.playback = playback

    def text_came(self) -> None:
        """Note that there is text to speak, from which the time to first audio counts."""
        if not self._text_came:
            self._text_came, self._arrival = True, self._metrics.now()

    def made(self, chunk: AudioChunk) -> None:
        """Note a chunk of the answer, before it is counted with :meth:`sent`."""
        for counter, seconds in zip(self._metrics.trimmed, chunk.trimmed_s, strict=True):
            counter.add(seconds)
        if chunk.verification is not None:
            self._metrics.redraws.add(chunk.verification.redraws)
        self._gate = self._gate or SilenceGate(chunk.sample_rate)
        self._gate.push(chunk.samples)

    def sent(self, seconds: float, spoken_s: float | None = None) -> bool:
        """Count audio that was just sent, and return whether it came too late.

        A silence before the first word counts when that comes: neither is it heard, nor does a machine make
        it.

        Args:
            spoken_s: seconds of speech in it; None where all is speech.
        """
        spoken_s = seconds if spoken_s is None else spoken_s
        self._unheard_s += seconds
        if not (spoken_s or (self._spoken_s and seconds)):
            return False
        metrics, playback = self._metrics, self.playback
        first, underruns = not self._spoken_s, playback.underruns
        playback.sent(self._unheard_s)
        self._unheard_s = 0.0
        self._spoken_s += spoken_s
        if first:
            metrics.first_audio.observe(self._elapsed_s())
        self._note_audible()
        metrics.audio_seconds.add(spoken_s)
        if self._text_whole:
            metrics.underruns.add(playback.underruns - underruns)
        return playback.underruns > underruns

    def __enter__(self) -> RequestTimer:
        self._metrics.inflight.add(1)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._metrics.inflight.add(-1)
        self._metrics.ended(error)
        if error is None and self._spoken_s and self._text_whole:
            self._metrics.real_time_factor.observe(self._elapsed_s() / self._spoken_s)

    def _note_audible(self) -> None:
        """Observe when the onset of the speech is played, once it has been sent."""
        gate, playback = self._gate, self.playback
        if gate is None or gate.onset is None or self._is_audible:
            return
        self._is_audible = True
        behind_s = playback.seconds - gate.onset / gate.rate
        self._metrics.first_audible.observe(self._elapsed_s() + playback.cushion_s - behind_s)

    def _elapsed_s(self) -> float:
        return self._metrics.now() - self._arrival
