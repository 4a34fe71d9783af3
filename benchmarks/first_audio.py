#!/usr/bin/env python3
"""Where the time to the first audio goes: one request after another through a server of its own, each traced.

    python benchmarks/first_audio.py checkpoint_dir=checkpoints/CosyVoice2-0.5B
    python benchmarks/first_audio.py --requests 30 checkpoint_dir=checkpoints/tiny cosyvoice2.cut_prompts=true

KEY=VALUE are settings, as for run.sh; the rest comes from variables. The processes write down when something
happens to the only utterance there is (`cosyvoice_runtime/metrics/moments.py`), all by one clock.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from cosyvoice_client import SpeechClient, SpeechRequest
from cosyvoice_runtime.metrics import moments
from cosyvoice_runtime.settings import Machine, ServerSettings, Settings
from cosyvoice_runtime.settings.repository import render, write
from cosyvoice_runtime.supervisor import Server
from measuring.machine import provenance
from measuring.report import table
from measuring.sentences import SENTENCES

TEMPLATES = Path(__file__).resolve().parent.parent / "model_repo"
STEPS = (
    ("asked", "cosyvoice2 has the request", "client, gateway and Triton to cosyvoice2"),
    ("cosyvoice2 has the request", "text and voice are ready", "text and voice"),
    ("text and voice are ready", "the speech LM has the request", "to the speech LM"),
    ("the speech LM has the request", "a token is drawn", "prompt and first token"),
    ("a token is drawn", "the speech LM sends tokens", "the other tokens of the chunk"),
    ("the speech LM sends tokens", "cosyvoice2 has tokens", "tokens to cosyvoice2"),
    ("cosyvoice2 has tokens", "token2wav has the chunk", "chunk to token2wav"),
    ("token2wav has the chunk", "a turn begins", "until its turn begins"),
    ("a turn begins", "a turn ends", "flow and vocoder"),
    ("a turn ends", "cosyvoice2 has audio", "audio to cosyvoice2"),
    ("cosyvoice2 has audio", "the first chunk may leave", "held back until the second follows in time"),
    ("the first chunk may leave", "cosyvoice2 has sent audio", "response into Triton"),
    ("cosyvoice2 has sent audio", "heard", "Triton, gateway and client"),
    ("asked", "heard", "all of it"),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--voice", help="one that the server knows; its default without")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ[moments.DIRECTORY_VARIABLE] = folder
        with serve(Path(folder), options.settings) as server:
            client = SpeechClient(server.grpc_url)
            traces = [
                trace(client, Path(folder), options.voice, number) for number in range(options.requests)
            ]
    print_table(traces[len(traces) // 4 :])  # the first ones fill caches


def serve(folder: Path, assignments: Sequence[str]) -> Server:
    settings = Settings.read([f"voices_dir={folder}/voices", *assignments], os.environ)
    repository = folder / "repository"
    write(render(TEMPLATES, settings.resolved(Machine.here())), repository)
    ports = dict.fromkeys(("http_port", "grpc_port", "metrics_port", "model_metrics_port"), 0)
    return Server(repository, ServerSettings(log_file=folder / "server.log", probe_interval_s=0.0, **ports))


def trace(client: SpeechClient, folder: Path, voice: str | None, number: int) -> dict[str, float]:
    """Seconds of each step of one request, its first audio heard."""
    texts = list(SENTENCES.values())
    request = SpeechRequest(texts[number % len(texts)], seed=number, voice=voice)
    asked = time.clock_gettime(time.CLOCK_MONOTONIC)
    chunks = client.speak(request)
    next(chunks)
    at = {"asked": asked, "heard": time.clock_gettime(time.CLOCK_MONOTONIC)}
    for _ in chunks:
        pass
    for moment, name in moments.read(folder):
        if moment >= asked:
            at.setdefault(name, moment)
    return {meaning: at[end] - at[start] for start, end, meaning in STEPS}


def print_table(traces: Sequence[dict[str, float]]) -> None:
    rows = []
    for _, _, meaning in STEPS:
        times = sorted(1e3 * each[meaning] for each in traces)
        rows.append([meaning, f"{statistics.median(times):.1f}", f"{times[int(0.95 * len(times))]:.1f}"])
    print(table(["step", "p50 ms", "p95 ms"], rows))
    machine = provenance()["machine"]
    hardware = ", ".join([machine["cpu"], f"{machine['cores']} cores", *machine["gpus"]])
    print(f"\n{len(traces)} requests, one after another; {hardware}")


if __name__ == "__main__":
    main()
