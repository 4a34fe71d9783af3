#!/usr/bin/env python3
"""Real servers whose stages answer after the time that a measured curve says, beside the simulated fleet.

    python benchmarks/timed_fleet.py --curve benchmarks/results/server_first_come.json --seconds 60

tritonserver, gateways, admission and the client's own balancing (round robin, three tries) are the product's.
Only the networks are replaced, by their times, so that two cores carry several GPUs, --slower times as slow.
The first row has as many places as a GPU, the second few, which refuse.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cosyvoice_client import AsyncSpeechClient, SpeechRequest
from cpu import DEMO_VOICE, CpuServer, Variant
from measuring.fleet_simulation import MEAN_S, Fleet, Simulation
from measuring.load import Sample, due_times, measure, open_loop
from measuring.machine import provenance
from measuring.report import table
from measuring.shared_gpu import SharedGpu
from measuring.speed_curve import Curve, curve_of, read_runs
from measuring.timed_stages import with_timed_stages
from measuring.workload import Utterance

TEXT = "The train leaves from platform four."
SMALL_PLACES = 4
SIMULATED_S = 2000.0
Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    curve = curve_of(read_runs(options.curve, options.gpu))
    loads = [
        (options.places, options.load * SharedGpu(curve, options.places).peak),
        (SMALL_PLACES, options.small_load * SharedGpu(curve, SMALL_PLACES).peak),
    ]
    rows = []
    with tempfile.TemporaryDirectory(prefix="timed-") as folder:
        for places, load in loads:
            with servers(Path(folder), curve, places, options) as urls:
                samples = asyncio.run(ask(urls, load, options))
            rows.append(compared(curve, places, load, samples, options))
    print(table(list(rows[0]), [[str(value) for value in row.values()] for row in rows]))
    if options.output:
        report = {"benchmark": "timed_fleet", **provenance(), "rows": rows}
        options.output.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--curve", type=Path, required=True, help="recorded runs of client_server.py")
    add("--gpu", default="", help="part of the GPU's name, where the file has several (its first)")
    add("--servers", type=int, default=3, help="(%(default)s)")
    add("--slower", type=float, default=10.0, help="than the curve (%(default)g)")
    add("--places", type=int, default=128, help="of a server in the first row (%(default)s)")
    add("--load", type=float, default=0.7, help="share of a GPU's peak, first row (%(default)g)")
    add("--small-load", type=float, default=1.0, help="share of its speed with few places (%(default)g)")
    add("--seconds", type=float, default=60.0, help="of each row (%(default)g)")
    add("--seed", type=int, default=1, help="(%(default)s)")
    add("--output", type=Path, help="JSON file for all rows")
    return parser.parse_args(arguments)


@contextmanager
def servers(folder: Path, curve: Curve, places: int, options: argparse.Namespace) -> Iterator[list[str]]:
    """Addresses of real servers with timed stages, which share what engines need."""
    given = (
        f"cosyvoice2.max_inflight_utterances={places}",
        f"tensorrt_llm.engine_dir={folder / 'speech_lm'}",
        f"token2wav.backend_dir={folder / 'networks'}",
    )
    with ExitStack() as stack:
        urls = []
        for number in range(options.servers):
            own = folder / f"{places}_{number}"
            own.mkdir()
            server = CpuServer(Variant("timed", given), DEMO_VOICE, own)
            with_timed_stages(own / "model_repo", curve, options.slower, options.seed + number)
            urls.append(stack.enter_context(server).url)
        yield urls


async def ask(urls: Sequence[str], load: float, options: argparse.Namespace) -> list[Sample]:
    """An open loop over all servers, by the client's own balancing."""
    rate = load * len(urls) / options.slower / MEAN_S
    due = due_times(rate, 10**6, options.seconds, "poisson", options.seed)
    async with AsyncSpeechClient(",".join(urls), timeout_s=600.0) as client:
        async for _ in client.speak(SpeechRequest(TEXT)):
            pass  # The voice and the connections are there afterwards.

        async def speak(utterance: Utterance, due_s: float, sample: Sample) -> Sample:
            async with contextlib.aclosing(client.speak(SpeechRequest(utterance.text))) as stream:
                return await measure(stream, due_s, sample)

        texts = itertools.repeat(Utterance("one", TEXT))
        return await open_loop(speak, texts, due, 10**6, lambda _: None)


def compared(
    curve: Curve, places: int, load: float, samples: Sequence[Sample], options: argparse.Namespace
) -> Row:
    """Measured and simulated figures; times are those of the curve."""
    fleet = Fleet(options.servers, fronts=1, places=places)
    demand = load * options.servers
    warm_s = options.seconds / 4
    simulated = Simulation(curve, fleet, lambda _: demand, demand, SIMULATED_S, options.seed).run()
    counted = [sample for sample in samples if sample.started_s > warm_s]
    spoken = [sample.timeline.ttfb_s or 0.0 for sample in counted if sample.error is None]
    failed = sorted({sample.error for sample in counted if sample.error not in (None, "unavailable")})
    first_ms = np.percentile(np.array(spoken) * 1e3 / options.slower, (50, 95))
    return {
        "places": places,
        "asked of a GPU, s/s": round(load),
        "requests": len(counted),
        "p50 / p95 ms": " / ".join(f"{value:.0f}" for value in first_ms),
        "simulated": " / ".join(f"{value:.0f}" for value in simulated.first_audio_ms()),
        "refused": f"{100 * (1 - len(spoken) / len(counted)):.2g} %",
        "refused, simulated": f"{100 * simulated.refused_share:.2g} %",
        "other errors": ", ".join(map(str, failed)) or "none",
    }


if __name__ == "__main__":
    sys.exit(main())
