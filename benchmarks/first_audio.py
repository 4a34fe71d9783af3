#!/usr/bin/env python3
"""Where the time to the first audio goes: each request through a server of its own is traced.

    python benchmarks/first_audio.py checkpoint_dir=checkpoints/CosyVoice2-0.5B
    python benchmarks/first_audio.py --requests 30 checkpoint_dir=checkpoints/tiny
    python benchmarks/first_audio.py --clients 16 --requests 160 checkpoint_dir=checkpoints/CosyVoice2-0.5B

KEY=VALUE are settings, as for run.sh; the rest comes from variables. The processes write down when something
happens to an utterance (`cosyvoice_runtime/metrics/trace.py`), all by one clock.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

from cosyvoice_client import SpeechClient, SpeechRequest
from cosyvoice_runtime.metrics import trace
from cosyvoice_runtime.settings import Machine, ServerSettings, Settings
from cosyvoice_runtime.settings.repository import render, write
from cosyvoice_runtime.supervisor import Server
from measuring.machine import provenance
from measuring.report import table
from measuring.sentences import SENTENCES

TEMPLATES = Path(__file__).resolve().parent.parent / "model_repo"
ASKED, HEARD = "asked", "heard"
TAKEN, SENT = "cosyvoice2 has the request", "cosyvoice2 has sent audio"
STEPS = (
    (ASKED, TAKEN, "client, gateway and Triton to cosyvoice2"),
    (TAKEN, "text and voice are ready", "text and voice"),
    ("text and voice are ready", "the speech LM has the request", "to the engine and its speech LM"),
    ("the speech LM has the request", "a token is drawn", "prompt and first token"),
    ("a token is drawn", "token2wav has the chunk", "the other tokens of the chunk"),
    ("token2wav has the chunk", "its batch begins", "until its batch begins"),
    ("its batch begins", "its batch is launched", "flow and vocoder, launched"),
    ("its batch is launched", "its batch ends", "flow and vocoder, the rest"),
    ("its batch ends", "the driver has audio", "to the utterance's driver"),
    ("the driver has audio", "the engine has sent audio", "to the engine's socket"),
    ("the engine has sent audio", SENT, "audio to cosyvoice2, response into Triton"),
    (SENT, HEARD, "Triton, gateway and client"),
    (TAKEN, SENT, "all of it within cosyvoice2"),
    (ASKED, HEARD, "all of it"),
)
"""Steps that begin and end them. Steps of client and server are told apart while there is one client."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--clients", type=int, default=1, help="at once, each with one request after another")
    parser.add_argument("--voice", help="one that the server knows; its default without")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ[trace.DIRECTORY_VARIABLE] = folder
        with serve(Path(folder), options.settings) as server:
            asked = ask_all(server.grpc_url, options)
        traces = read_traces(Path(folder), asked)
    if options.clients == 1:
        traces = [
            {**trace, ASKED: at, HEARD: heard} for trace, (at, heard) in zip(traces, asked, strict=True)
        ]
    print_table(traces[len(traces) // 4 :], options.clients)  # the first ones fill caches


def serve(folder: Path, assignments: Sequence[str]) -> Server:
    settings = Settings.read([f"voices_dir={folder}/voices", *assignments], os.environ)
    repository = folder / "repository"
    write(render(TEMPLATES, settings.resolved(Machine.here())), repository)
    ports = dict.fromkeys(("http_port", "grpc_port", "metrics_port", "model_metrics_port"), 0)
    return Server(repository, ServerSettings(log_file=folder / "server.log", probe_interval_s=0.0, **ports))


def ask_all(url: str, options: argparse.Namespace) -> list[tuple[float, float]]:
    """When each request was asked for, and when its first audio was heard; monotonic seconds."""
    clients = Queue[SpeechClient]()
    for _ in range(options.clients):
        clients.put(SpeechClient(url))

    def ask(number: int) -> tuple[float, float]:
        client = clients.get()
        try:
            return ask_one(client, number, options.voice)
        finally:
            clients.put(client)

    with ThreadPoolExecutor(options.clients) as pool:
        return list(pool.map(ask, range(options.requests)))


def ask_one(client: SpeechClient, number: int, voice: str | None) -> tuple[float, float]:
    texts = list(SENTENCES.values())
    asked = trace.now()
    chunks = client.speak(SpeechRequest(texts[number % len(texts)], seed=number, voice=voice))
    next(chunks)
    heard = trace.now()
    for _ in chunks:
        pass
    return asked, heard


def read_traces(folder: Path, asked: Sequence[tuple[float, float]]) -> list[dict[str, float]]:
    """When what first happened to each request, by name, in the order in which they came."""
    traces: dict[str, dict[str, float]] = {}
    for moment in trace.read(folder):
        traces.setdefault(moment.utterance, {}).setdefault(moment.name, moment.at)
    begin = asked[0][0]  # the server's own trials came before
    return [trace for trace in traces.values() if SENT in trace and trace.get(TAKEN, 0.0) >= begin]


def print_table(traces: Sequence[Mapping[str, float]], clients: int) -> None:
    rows = []
    for start, end, meaning in STEPS:
        times = sorted(
            1e3 * (trace[end] - trace[start]) for trace in traces if start in trace and end in trace
        )
        if times:
            rows.append([meaning, f"{statistics.median(times):.1f}", f"{times[int(0.95 * len(times))]:.1f}"])
    print(table(["step", "p50 ms", "p95 ms"], rows))
    machine = provenance()["machine"]
    hardware = ", ".join([machine["cpu"], f"{machine['cores']} cores", *machine["gpus"]])
    print(f"\n{len(traces)} requests, {clients} at once; {hardware}")


if __name__ == "__main__":
    main()
