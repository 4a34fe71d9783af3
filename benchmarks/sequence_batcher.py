"""Triton's sequence batcher against a store of one's own behind the dynamic batcher, on a real server.

Utterances send chunks of uneven size through a BLS model to a stand-in for token2wav, which costs 4 ms a
call and 1 ms a row. Then the sequence batcher's slots are taken by sequences that nobody continues.

    python benchmarks/sequence_batcher.py --utterances 1 8 16 32
"""

from __future__ import annotations

import argparse
import queue
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as triton

from cosyvoice_runtime.direct import DIRECT
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.settings.repository import read, write
from cosyvoice_runtime.settings.template import fill
from cosyvoice_runtime.supervisor import Server

MODELS = Path(__file__).with_suffix("") / "model_repo"
CANDIDATES = (8, 64)
TIMEOUT_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--utterances", type=int, nargs="+", default=[1, 8, 16, 32])
    parser.add_argument("--chunks", type=int, default=20)
    options = parser.parse_args()
    print(f"{'':24}{'utterances':>11}{'p50 ms':>8}{'p99 ms':>8}{'first p99':>10}{'rows':>6}{'seconds':>9}")
    for candidates in CANDIDATES:
        with tempfile.TemporaryDirectory() as folder, serve(Path(folder), candidates) as server:
            for count in options.utterances:
                if candidates == CANDIDATES[0]:
                    measure(server, "own_store", "own store", count, options.chunks)
                measure(server, "oldest", f"oldest, {candidates} candidates", count, options.chunks)
            seconds = wait_behind_abandoned(server, candidates)
            print(f"oldest, {candidates} abandoned sequences: the next one waits {seconds:.2f} s")


def serve(folder: Path, candidates: int) -> Server:
    files = read(MODELS)
    for path, content in files.items():
        if path.suffix == ".pbtxt":
            files[path] = fill(content.decode(), {"candidates": str(candidates)}, str(path)).encode()
    write(files, folder / "repository")
    settings = ServerSettings(
        http_port=0, grpc_port=0, metrics_port=0, model_metrics_port=0, entry_models=("driver",),
        open_models=("*",), log_file=folder / "tritonserver.log", probe_interval_s=0.0,
    )  # fmt: skip
    return Server(folder / "repository", settings, probes={})


def measure(server: Server, child: str, label: str, count: int, chunks: int) -> None:
    """Speak ``count`` utterances at once and print how long their chunks took."""
    sizes = [np.random.default_rng(row).integers(0, 100, chunks) for row in range(count)]
    started = time.perf_counter()
    with ThreadPoolExecutor(count) as pool:
        answers = list(pool.map(lambda row: drive(server, child, row + 1, sizes[row]), range(count)))
    wall = time.perf_counter() - started
    seconds = np.array([seconds for seconds, _ in answers]) * 1e3
    rows = np.mean([rows for _, rows in answers])
    p50, p99, first = np.percentile(seconds, 50), np.percentile(seconds, 99), np.percentile(seconds[:, 0], 99)
    print(f"{label:24}{count:11}{p50:8.1f}{p99:8.1f}{first:10.1f}{rows:6.1f}{wall:9.2f}", flush=True)


def drive(server: Server, child: str, utterance: int, sizes: Sequence[int]) -> tuple[Any, Any]:
    """Seconds of each chunk of one utterance, and rows of the batch it was in."""
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client = triton.InferenceServerClient(server.grpc_url, channel_args=[DIRECT])
    client.start_stream(callback=lambda result, error: answers.put((result, error)))
    client.async_stream_infer(
        "driver",
        [
            tensor("child", np.array([child.encode()], np.object_), "BYTES"),
            tensor("utterance", np.array([utterance], np.int32), "INT32"),
            tensor("sizes", np.array(sizes, np.int32), "INT32"),
        ],
    )
    result, error = answers.get(timeout=TIMEOUT_S)
    client.stop_stream()
    client.close()
    if error is not None:
        raise error
    return result.as_numpy("seconds"), result.as_numpy("rows")


def wait_behind_abandoned(server: Server, candidates: int) -> float:
    """Seconds until a sequence is answered when all slots belong to sequences that nobody continues."""
    client = triton.InferenceServerClient(server.grpc_url, channel_args=[DIRECT])
    inputs = [tensor("speech_tokens", np.zeros((1, 1), np.int32), "INT32")]
    for sequence in range(1000, 1000 + candidates):
        client.infer("oldest", inputs, sequence_id=sequence, sequence_start=True)
    started = time.perf_counter()
    client.infer("oldest", inputs, sequence_id=999, sequence_start=True)
    return time.perf_counter() - started


def tensor(name: str, array: np.ndarray[Any, Any], datatype: str) -> Any:
    result = triton.InferInput(name, array.shape, datatype)
    result.set_data_from_numpy(array)
    return result


if __name__ == "__main__":
    main()
