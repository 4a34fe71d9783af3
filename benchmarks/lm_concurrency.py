"""Tokens per second of the model ``tensorrt_llm`` on a real server, by the number of requests at a time.

The same requests are sent for every concurrency, as streams, each as soon as one before it has ended. What
they answer must not depend on the concurrency.

    python benchmarks/lm_concurrency.py --concurrency 1 16
    python benchmarks/lm_concurrency.py --checkpoint checkpoints/CosyVoice2-0.5B tensorrt_llm.device=cuda
"""

from __future__ import annotations

import argparse
import json
import queue
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tritonclient.grpc as triton

from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.making import make_checkpoint
from cosyvoice_runtime.checkpoint.merged_vocabulary import MergedVocabulary
from cosyvoice_runtime.direct import DIRECT
from cosyvoice_runtime.settings import Machine, ServerSettings, Settings
from cosyvoice_runtime.settings.repository import render, write
from cosyvoice_runtime.supervisor import Server

MODEL = "tensorrt_llm"
TEMPLATES = Path(__file__).resolve().parent.parent / "model_repo"
TEXT_TOKENS = 20
PROMPT_TOKENS = 75


class Answer(NamedTuple):
    ids: list[int]
    first_s: float
    responses: int


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", type=Path, help="default: a small one is made")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=300, help="speech tokens of each request (25 a second)")
    parser.add_argument("--repeats", type=int, default=3, help="of which the fastest counts")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        checkpoint = options.checkpoint or make_checkpoint(directory / "tiny", "tiny", seed=0)
        prompt = make_prompt(checkpoint)
        with serve(directory, [f"checkpoint_dir={checkpoint}", "engine=torch", *options.settings]) as server:
            figures = measure(server, prompt, options)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


def measure(server: Server, prompt: list[int], options: argparse.Namespace) -> list[dict[str, float]]:
    """One row of figures per concurrency, also as a table on the screen."""
    run(server, prompt, options.tokens, options.requests, 1)  # the first run is slower
    print("concurrency  seconds  tokens/s  speed-up  first token p50 ms  responses")
    figures: list[dict[str, float]] = []
    expected: list[list[int]] | None = None
    for concurrency in options.concurrency:
        runs = [
            run(server, prompt, options.tokens, options.requests, concurrency) for _ in range(options.repeats)
        ]
        seconds, answers = min(runs, key=lambda run: run[0])
        expected = expected or [answer.ids for answer in answers]
        for _, repeated in runs:
            assert [answer.ids for answer in repeated] == expected, "answers depend on the concurrency"
        figures.append(
            {
                "concurrency": concurrency,
                "seconds": seconds,
                "tokens_per_s": sum(len(answer.ids) for answer in answers) / seconds,
                "speed_up": (figures[0]["seconds"] if figures else seconds) / seconds,
                "first_token_p50_ms": 1e3 * statistics.median(answer.first_s for answer in answers),
                "responses": sum(answer.responses for answer in answers),
            }
        )
        print("{:11} {:8.2f} {:9.0f} {:9.2f} {:19.1f} {:10}".format(*figures[-1].values()), flush=True)
    return figures


def run(
    server: Server, prompt: list[int], tokens: int, requests: int, concurrency: int
) -> tuple[float, list[Answer]]:
    """Seconds for all requests, and their answers."""
    with ThreadPoolExecutor(concurrency) as pool:
        started = time.perf_counter()
        answers = list(pool.map(lambda seed: ask(server, prompt, tokens, seed), range(requests)))
        return time.perf_counter() - started, answers


def ask(server: Server, prompt: list[int], tokens: int, seed: int) -> Answer:
    """Stream one request; its length is fixed, its tokens follow from the seed."""
    responses: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client = triton.InferenceServerClient(server.grpc_url, channel_args=[DIRECT])
    client.start_stream(callback=lambda result, error: responses.put((result, error)))
    inputs = [
        tensor("input_ids", "INT32", prompt),
        tensor("input_lengths", "INT32", [len(prompt)]),
        *(tensor(name, "INT32", [tokens]) for name in ("request_output_len", "min_tokens")),
        tensor("runtime_top_k", "INT32", [50]),
        tensor("runtime_top_p", "FP32", [0.95]),
        tensor("seed", "UINT64", [seed]),
        tensor("streaming", "BOOL", [True]),
    ]
    started = time.perf_counter()
    client.async_stream_infer(MODEL, inputs, enable_empty_final_response=True)
    groups: list[list[int]] = []
    first_s = 0.0
    final = False
    while not final:
        result, error = responses.get()
        if error is not None:
            raise error
        ids = result.as_numpy("output_ids")
        if ids is not None:
            first_s = first_s or time.perf_counter() - started
            groups.append(ids[0, 0].tolist())
        final = result.get_response().parameters["triton_final_response"].bool_param
    client.stop_stream()
    client.close()
    return Answer([id_ for group in groups for id_ in group], first_s, len(groups))


def tensor(name: str, datatype: str, values: Sequence[float]) -> triton.InferInput:
    array = np.array([values], triton.triton_to_np_dtype(datatype))
    built = triton.InferInput(name, array.shape, datatype)
    built.set_data_from_numpy(array)
    return built


def make_prompt(checkpoint: Path) -> list[int]:
    """``[sos] text [task_id] prompt speech`` with arbitrary ids."""
    vocabulary = MergedVocabulary.of(Layout(checkpoint), load_config(checkpoint).speech_lm)
    speech = range(vocabulary.speech_offset, vocabulary.speech_offset + PROMPT_TOKENS)
    return [vocabulary.sos_id, *range(1, TEXT_TOKENS + 1), vocabulary.task_id, *speech]


@contextmanager
def serve(directory: Path, assignments: list[str]) -> Iterator[Server]:
    """A server with this model alone."""
    templates, repository = directory / "templates", directory / "repository"
    shutil.copytree(TEMPLATES / MODEL, templates / MODEL)
    settings = Settings.read(assignments).resolved(Machine.here())
    write(render(templates, settings), repository)
    ports = {"http_port": 0, "grpc_port": 0, "metrics_port": 0, "model_metrics_port": 0}
    log = directory / "tritonserver.log"
    own = ServerSettings(**ports, log_file=log, probe_interval_s=0.0, open_models=("*",))
    with Server(repository, own) as server:
        yield server


if __name__ == "__main__":
    main()
