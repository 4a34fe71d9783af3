"""Latency of token2wav's chunks through a real server, with several utterances at once.

A small checkpoint is made, rendered and served. Every client speaks utterances one after another with a
voice that the server knows, in chunks as cosyvoice2 cuts them when the speech LM is ahead. A client asks for
its next chunk as soon as it has the last one (closed loop), tells how much audio it has left
to play, and plays what it gets: an utterance with a silence of over 100 ms is not continuous.

    python benchmarks/token2wav_latency.py token2wav.max_batch=8 --concurrency 1 4 8
    python benchmarks/token2wav_latency.py --family cosyvoice300m
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tritonclient.grpc as triton

from cosyvoice_client import Timeline
from cosyvoice_runtime.checkpoint import load_config
from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.family import COSYVOICE2, FAMILIES
from cosyvoice_runtime.checkpoint.making import make_checkpoint
from cosyvoice_runtime.direct import DIRECT
from cosyvoice_runtime.pipeline.hop import HopPolicy
from cosyvoice_runtime.pipeline.utterance import Playback
from cosyvoice_runtime.settings import CosyVoice2Settings, Machine, ServerSettings, Settings
from cosyvoice_runtime.settings.repository import render, write
from cosyvoice_runtime.supervisor import Server
from measuring.page import read_page
from measuring.wave_chunks import MODEL, wave_chunk, wave_inputs

TEMPLATES = Path(__file__).parent.parent / "model_repo"
PROMPT_S, SPEECH_S = 2.6, 10
SILENCE_S = 0.1


class Spoken(NamedTuple):
    """What every client speaks: utterances of a checkpoint's family.

    Attributes:
        prompt, tokens: speech tokens of the voice and of an utterance.
    """

    config: ModelConfig
    hop: HopPolicy
    prompt: int
    tokens: int

    @classmethod
    def of(cls, checkpoint: Path) -> Spoken:
        config = load_config(checkpoint)
        rate = config.flow.token_rate
        hop = HopPolicy.of(config.flow, CosyVoice2Settings())
        return cls(config, hop, round(rate * PROMPT_S), rate * SPEECH_S)

    def drawn(self, count: int, seed: int) -> np.ndarray[Any, Any]:
        """Speech tokens, int32 ``[count]``."""
        rows = self.config.flow.token_vocab_size
        return np.random.default_rng(seed).integers(0, rows, count).astype(np.int32)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--utterances", type=int, default=6, help="of each client")
    parser.add_argument("--size", choices=("tiny", "full"), default="tiny")
    families = [family.name for family in FAMILIES]
    parser.add_argument("--family", choices=families, default=COSYVOICE2.name)
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args()
    print("clients  first p50  first p99  later p50  later p99 (ms)  continuous  rows/turn  audio s/s")
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = make_checkpoint(Path(folder) / "checkpoint", options.size, seed=0, family=options.family)
        spoken = Spoken.of(checkpoint)
        with serve(Path(folder), checkpoint, options.settings) as server:
            teach_voice(server, spoken)
            speak(server, spoken, "warm", 0)
            for clients in options.concurrency:
                measure(server, spoken, clients, options.utterances)


def serve(folder: Path, checkpoint: Path, assignments: Sequence[str]) -> Server:
    given = [f"checkpoint_dir={checkpoint}", "token2wav.backend=torch", *assignments]
    settings = Settings.read(given).resolved(Machine.here())
    files = render(TEMPLATES, settings)
    write({path: text for path, text in files.items() if path.parts[0] == MODEL}, folder / "repository")
    server = ServerSettings(
        http_port=0,
        grpc_port=0,
        metrics_port=0,
        model_metrics_port=0,
        log_file=folder / "server.log",
        probe_interval_s=0.0,
        open_models=("*",),
    )
    return Server(folder / "repository", server)


def teach_voice(server: Server, spoken: Spoken) -> None:
    """Make the server know the voice that all utterances use."""
    config, draw = spoken.config.flow, np.random.default_rng(0)
    shape = (1, config.frames(spoken.prompt), config.mel_bins)
    prompt = {
        "prompt_speech_tokens": spoken.drawn(spoken.prompt, 0)[None],
        "prompt_speech_feat": (2 * draw.standard_normal(shape) - 6).astype(np.float32),
        "prompt_spk_embedding": draw.standard_normal((1, config.speaker_dim)).astype(np.float32),
    }
    opening = wave_chunk("voice", [], 0, True, "voice") | prompt
    triton.InferenceServerClient(server.grpc_url, channel_args=[DIRECT]).infer(MODEL, wave_inputs(opening))


def measure(server: Server, spoken: Spoken, clients: int, utterances: int) -> None:
    (rows_before, turns_before), started = rows_and_turns(server), time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        jobs = [pool.submit(partial(one_client, server, spoken, row, utterances)) for row in range(clients)]
        heard = [utterance for job in jobs for utterance in job.result()]
    wall = time.perf_counter() - started
    continuous = np.mean([max(timeline.underruns_s, default=0.0) <= SILENCE_S for _, timeline in heard])
    rows, turns = rows_and_turns(server)
    mean_rows = (rows - rows_before) / (turns - turns_before)
    first = [chunks[0] for chunks, _ in heard]
    later = [seconds for chunks, _ in heard for seconds in chunks[1:]]
    figures = [1e3 * np.percentile(values, q) for values in (first, later) for q in (50, 99)]
    audio = clients * utterances * SPEECH_S / wall
    print(
        f"{clients:7}" + "".join(f"{figure:11.1f}" for figure in figures),
        f"{continuous:16.0%}{mean_rows:11.1f}{audio:11.1f}",
        flush=True,
    )


Heard = tuple[list[float], Timeline]
"""Seconds that each chunk of an utterance took, and when its audio came."""


def one_client(server: Server, spoken: Spoken, row: int, utterances: int) -> list[Heard]:
    return [speak(server, spoken, f"{row}-{number}", number) for number in range(utterances)]


def speak(server: Server, spoken: Spoken, name: str, seed: int) -> Heard:
    client, hop, rate = (
        triton.InferenceServerClient(server.grpc_url, channel_args=[DIRECT]),
        spoken.hop,
        spoken.config.vocoder.sample_rate,
    )
    tokens = spoken.drawn(spoken.tokens, seed)
    seconds, start, boundary, timeline, begun = [], 0, 0, Timeline(), time.perf_counter()
    playback = Playback(time.perf_counter)
    while start < len(tokens):
        asked, cushion_s = time.perf_counter(), playback.cushion_s
        boundary = hop.chunk_end(spoken.prompt, boundary, len(tokens), cushion_s) or len(tokens)
        end = min(boundary + hop.lookahead_tokens, len(tokens))
        cushion = {"cushion": np.array([[cushion_s]], np.float32)}
        chunk = wave_chunk(name, tokens[start:end], start, end == len(tokens), "voice")
        wave = client.infer(MODEL, wave_inputs(chunk | cushion)).as_numpy("waveform")
        now = time.perf_counter()
        seconds.append(now - asked)
        timeline.add(now - begun, wave.size / rate)
        playback.sent(wave.size / rate)
        start = end
    client.close()
    return seconds, timeline


def rows_and_turns(server: Server) -> tuple[float, float]:
    """Chunks computed so far, and the turns they were computed in."""
    text = read_page(f"http://{server.metrics_url}/metrics")
    name = "cosyvoice_token2wav_turn_rows"
    rows, turns = (re.search(rf"^{name}_{part}\{{.*\}} (\S+)$", text, re.M) for part in ("sum", "count"))
    assert rows is not None
    assert turns is not None
    return float(rows[1]), float(turns[1])


if __name__ == "__main__":
    main()
