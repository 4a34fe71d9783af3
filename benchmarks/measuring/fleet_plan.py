"""How many GPUs and fronts listeners need, and what an autoscaler should keep them at."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from measuring.shared_gpu import SharedGpu, State
from measuring.speed_curve import Curve

SERVER_BYTES_S, OUT_BYTES_S = 96_000, 48_000
"""Bytes of a second of speech: float32 from a server to a front, and pcm from a front to a listener."""
LEAST_PODS = 2
"""Of servers and of fronts, so that one may be lost."""


class OutOfReach(ValueError):
    """No load of a GPU, however small, begins speech so soon."""


@dataclass(frozen=True)
class Needs:
    """
    Who listens, and what is assumed.

    Attributes:
        listeners: at the busiest time.
        ttfb_p95_ms: 95 of 100 utterances begin within so many milliseconds.
        share: of the time that a listener hears speech.
        refused: the greatest share of requests that may be refused.
        places: utterances of a server at once.
        growth: share by which the demand grows a minute while it grows.
        pod_s: seconds from the wish for a pod until it serves.
        spare: share of the GPUs, and at least one, that may be lost or updated at once.
        front_cpu_ms: processor time of a front for a second of speech.
        front_load: share of its core that a front is kept at.
        front_streams: setting front.max_streams.
    """

    listeners: int
    ttfb_p95_ms: float
    share: float = 1.0
    refused: float = 0.001
    places: int = 128
    growth: float = 0.02
    pod_s: float = 300.0
    spare: float = 0.1
    front_cpu_ms: float = 0.65
    front_load: float = 0.6
    front_streams: int = 256

    @property
    def demand(self) -> float:
        """Seconds of speech a second."""
        return self.listeners * self.share

    @property
    def grows(self) -> float:
        """Share by which the demand grows until a new pod serves."""
        return self.growth * self.pod_s / 60


@dataclass(frozen=True)
class Plan:
    """
    Attributes:
        peak: seconds of speech a second that a GPU makes at most.
        most: those that it makes within the limits.
        limit: a GPU that makes them.
        needed: GPUs for the demand alone.
        growing: with those that serve what comes until a new one does.
        gpus: with spares.
        planned: utterances in progress of a pod at which one more is started.
        load: seconds of speech a second of a pod at that number.
        usual: a GPU with that load.
        fronts: processes of one core, with a spare one.
        inside_mbit_s: from servers to fronts.
        outside_mbit_s: from fronts to listeners.
    """

    peak: float
    most: float
    limit: State
    needed: int
    growing: int
    gpus: int
    planned: int
    load: float
    usual: State
    fronts: int
    inside_mbit_s: float
    outside_mbit_s: float


def plan(curve: Curve, needs: Needs) -> Plan:
    """Plan a fleet of machines with this curve.

    Raises:
        OutOfReach: first audio takes longer with one listener.
    """
    gpu = SharedGpu(curve, needs.places)
    most = gpu.most(needs.ttfb_p95_ms, needs.refused)
    if not most:
        alone_ms = gpu.state(gpu.peak / 1e6).first_audio_ms[1]
        raise OutOfReach(
            f"ttfb_p95_ms is {needs.ttfb_p95_ms:g}; the machine needs {alone_ms:.0f} for one listener alone"
        )
    needed = _whole(needs.demand / most)
    growing = _whole(needs.demand * (1 + needs.grows) / most)
    gpus = growing + _whole(growing * needs.spare)
    limit, load = gpu.state(most), usual_load(most, needs, gpus)
    usual = gpu.state(load)
    return Plan(
        gpu.peak,
        most,
        limit,
        needed,
        growing,
        gpus,
        max(1, int(usual.in_progress)),
        load,
        usual,
        _fronts(needs, needed * limit.in_progress),
        needs.demand * SERVER_BYTES_S * 8 / 1e6,
        needs.demand * OUT_BYTES_S * 8 / 1e6,
    )


def usual_load(most: float, needs: Needs, gpus: int) -> float:
    """The load of a GPU that leaves room for others to be away and for growth until a new one serves.

    Args:
        most: seconds of speech a second that it makes within the limits.
        gpus: of the fleet, at least two.

    Returns:
        Seconds of speech a second.
    """
    spares = _whole(gpus * needs.spare / (1 + needs.spare))
    return most / (1 + needs.grows) * (gpus - spares) / gpus


def _fronts(needs: Needs, in_progress: float) -> int:
    by_processor = needs.demand * needs.front_cpu_ms / 1e3 / needs.front_load
    by_streams = in_progress / needs.front_streams
    fronts = _whole(max(by_processor, by_streams))
    return max(LEAST_PODS, fronts + _whole(fronts * needs.spare))


def _whole(number: float) -> int:
    """At least one."""
    return max(1, math.ceil(number - 1e-9))


def otherwise(curve: Curve, needs: Needs) -> Iterator[tuple[str, Plan | None]]:
    """The plan with one assumption after the other changed; None where first audio is out of reach."""
    cases: list[tuple[str, Curve, Needs]] = [
        (f"{percent(share)} of the time is heard", curve, replace(needs, share=share))
        for share in (0.3, 0.5, 1.0)
        if share != needs.share
    ]
    cases += [
        (f"95 of 100 begin within {limit_ms:g} ms", curve, replace(needs, ttfb_p95_ms=limit_ms))
        for limit_ms in (round(0.8 * needs.ttfb_p95_ms), round(1.33 * needs.ttfb_p95_ms))
    ]
    cases += [
        ("GPUs are 10 % slower", curve.scaled(speed=0.9), needs),
        ("GPUs are 27 % slower", curve.scaled(speed=0.73), needs),
        ("first audio is 10 % later", curve.scaled(first_audio=1.1), needs),
        ("a server has 64 places", curve, replace(needs, places=64)),
        ("1 of 100,000 is refused", curve, replace(needs, refused=1e-5)),
        ("the demand never grows fast", curve, replace(needs, growth=0.0)),
        ("a pod takes a minute", curve, replace(needs, pod_s=60.0)),
        ("a pod takes a quarter of an hour", curve, replace(needs, pod_s=900.0)),
        ("a fifth of the GPUs is spare", curve, replace(needs, spare=0.2)),
        ("a front is kept at 30 % of its core", curve, replace(needs, front_load=0.3)),
        ("a front has 64 streams", curve, replace(needs, front_streams=64)),
    ]
    for name, machine, other in cases:
        try:
            yield name, plan(machine, other)
        except OutOfReach:
            yield name, None


def percent(share: float) -> str:
    return f"{100 * share:.3g} %"
