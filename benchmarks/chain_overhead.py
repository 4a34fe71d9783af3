"""What the chain of models costs by itself: the speech LM and token2wav are replaced by instant ones.

The instant LM sends 25 speech tokens every 100 ms, the instant token2wav answers at once. A chunk's overhead
is the time from sending the tokens that complete it to its arrival at the client, all on one clock.

    python benchmarks/chain_overhead.py --concurrency 1 8
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from cosyvoice_client import SpeechClient, SpeechRequest
from cosyvoice_runtime.checkpoint.making import make_checkpoint
from cosyvoice_runtime.settings import Machine, ServerSettings, Settings
from cosyvoice_runtime.settings.repository import render, write
from cosyvoice_runtime.supervisor import Server

TEMPLATES = Path(__file__).resolve().parent.parent / "model_repo"
MODELS = Path(__file__).with_suffix("")
GROUP_TOKENS = 25
DIRECTORY_VARIABLE = "CHAIN_TRACE_DIR"
TEXT = "The train to the coast leaves from platform four."
PARTS = {
    "request to LM": "client's request to the start of the LM",
    "tokens to call": "LM's tokens to the call of token2wav",
    "call to token2wav": "call of token2wav to its start",
    "token2wav": "inside the instant token2wav",
    "answer": "its answer to cosyvoice2",
    "to client": "cosyvoice2 to the client",
    "chunk": "tokens to client, all of it",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--utterances", type=int, default=100, help="for each concurrency")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ[DIRECTORY_VARIABLE] = folder
        with serve(Path(folder)) as server:
            speak(server)
            for clients in options.concurrency:
                print_table(clients, measure(server, Path(folder), clients, options.utterances))


def serve(folder: Path, *assignments: str) -> Server:
    """The repository as it is rendered, with instant models in place of two, and with further settings."""
    checkpoint = make_checkpoint(folder / "checkpoint", "tiny", seed=0)
    settings = Settings.read(
        [
            f"checkpoint_dir={checkpoint}",
            f"voices_dir={folder}/voices",
            "max_hop_tokens=25",
            "process=own",
            *assignments,
        ]
    )
    repository = folder / "repository"
    write(render(TEMPLATES, settings.resolved(Machine.here())), repository)
    for source in MODELS.glob("*.py"):
        if source.stem != "moments":
            shutil.copy(source, repository / source.stem / "1" / "model.py")
            shutil.copy(MODELS / "moments.py", repository / source.stem / "1" / "moments.py")
    ports = ServerSettings(
        http_port=0,
        grpc_port=0,
        metrics_port=0,
        model_metrics_port=0,
        log_file=folder / "server.log",
        probe_interval_s=0.0,
    )
    return Server(repository, ports)


def measure(server: Server, folder: Path, clients: int, utterances: int) -> dict[str, list[float]]:
    """Seconds of each part, one value a chunk."""
    traces = [folder / f"{model}.jsonl" for model in ("tensorrt_llm", "token2wav", "cosyvoice2")]
    for trace in traces:
        trace.unlink(missing_ok=True)
    with ThreadPoolExecutor(clients) as pool:
        spoken = list(pool.map(lambda _: speak(server), range(utterances)))
    time.sleep(1.0)  # models write their notes after they have answered
    arrivals = {number: (sent, at) for number, sent, at in spoken}
    return split(arrivals, *(read(trace) for trace in traces))


def speak(server: Server) -> tuple[int, float, list[float]]:
    """Number of the utterance, when it was asked for, and when its chunks came."""
    sent = time.clock_gettime(time.CLOCK_MONOTONIC)
    chunks = list(SpeechClient(server.grpc_url).speak(SpeechRequest(TEXT, seed=1)))
    return int(chunks[0].samples[0]), sent, [sent + chunk.arrived_s for chunk in chunks]


def read(trace: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in trace.read_text(encoding="utf-8").splitlines()]


def split(
    arrivals: dict[int, tuple[float, list[float]]],
    lm: Sequence[dict[str, Any]],
    wave: Sequence[dict[str, Any]],
    calls: Sequence[dict[str, Any]],
) -> dict[str, list[float]]:
    """Divide the way of each chunk, but the last of an utterance, whose end is no group of tokens."""
    groups = {record["utterance"]: record for record in lm}
    call_of = {(record["utterance"], record["position"]): record for record in calls}
    parts: dict[str, list[float]] = {name: [] for name in PARTS}
    for utterance, number, chunks in by_utterance(wave):
        asked, came = arrivals[number]
        parts["request to LM"].append(groups[utterance]["received"] - asked)
        for chunk, arrived in list(zip(chunks, came, strict=True))[:-1]:
            end = chunk["position"] + chunk["tokens"]
            sent = groups[utterance]["sent"][-(-end // GROUP_TOKENS) - 1]
            call = call_of[utterance, chunk["position"]]
            parts["tokens to call"].append(call["start"] - sent)
            parts["call to token2wav"].append(chunk["start"] - call["start"])
            parts["token2wav"].append(chunk["end"] - chunk["start"])
            parts["answer"].append(call["end"] - chunk["end"])
            parts["to client"].append(arrived - call["end"])
            parts["chunk"].append(arrived - sent)
    return parts


def by_utterance(wave: Sequence[dict[str, Any]]) -> Iterator[tuple[str, int, list[dict[str, Any]]]]:
    """Each utterance's chunks in order."""
    for number in sorted({record["number"] for record in wave}):
        chunks = sorted(
            (record for record in wave if record["number"] == number), key=lambda row: row["position"]
        )
        yield chunks[0]["utterance"], number, chunks


def print_table(clients: int, parts: dict[str, list[float]]) -> None:
    print(f"\n{clients} at a time, {len(parts['chunk'])} chunks\n\n| part | p50 ms | p99 ms |\n|---|---|---|")
    for name, meaning in PARTS.items():
        p50, p99 = np.percentile(np.array(parts[name]) * 1e3, [50, 99])
        print(f"| {meaning} | {p50:.2f} | {p99:.2f} |", flush=True)


if __name__ == "__main__":
    main()
