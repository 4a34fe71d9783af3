"""``python -m demo_voice.training``: text, data, all trainings side by side on one GPU, and the export.

A piece of training takes ``--seconds``, data included, and goes on from what the folder ``--kept`` holds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import torch

from demo_voice.training import data, export, flow, lm, speaker_encoder, speech_tokenizer, vocoder
from demo_voice.training.readings import Readings, make_readings
from demo_voice.training.trainer import plot_losses

ON_CORPUS = {
    "speech_tokenizer": speech_tokenizer.run,
    "speaker_encoder": speaker_encoder.run,
    "flow": flow.run,
    "vocoder": vocoder.run,
}
STAGES = (*ON_CORPUS, "lm")
RECIPE = (tuple(ON_CORPUS), ("flow", "vocoder"), ("flow", "vocoder"), ("lm",))
"""What the pieces of ``all`` train. Those without the speech LM let more be read for it meanwhile."""
EXTRACTORS = ("speech_tokenizer", "speaker_encoder")
SAVING_SECONDS, LAST_READING_SECONDS = 12, 8
FIRST_SHARE = 4
"""Vocoder and extractors start when one part in this number of the corpus is there, and keep to those."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one piece of training, or one stage of it."""
    options = _parser().parse_args(arguments)
    if options.stage == "text":
        data.write_script(options.script, options.utterances, options.more, options.wordnet, options.seed)
    elif options.stage == "export":
        export.export(options.kept, options.checkpoint)
    elif options.stage == "features":
        _features(options)
    elif options.stage == "readings":
        _readings(options)
    elif options.stage == "piece":
        return _piece(options)
    elif options.stage == "all":
        return _everything(options)
    else:
        _train(options)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo_voice.training", description=__doc__)
    tasks = ("all", "text", "piece", "features", "readings", *STAGES, "export")
    parser.add_argument("stage", nargs="?", default="all", choices=tasks)
    parser.add_argument("--script", type=Path, default=Path(".demo_training/script.json"))
    parser.add_argument("--wordnet", type=Path, default=Path("/usr/share/wordnet"))
    parser.add_argument("--utterances", type=int, default=36_000)
    parser.add_argument("--more", type=int, default=100_000, help="utterances for the speech LM alone")
    parser.add_argument("--seed", type=int, default=0, help="who reads what: another one for each piece")
    parser.add_argument("--train", nargs="+", choices=STAGES, default=STAGES, help="in this piece")
    parser.add_argument("--work", type=Path, default=Path("/tmp/demo_voice"), help="corpus and features")
    parser.add_argument("--kept", type=Path, default=Path(".demo_training"), help="weights between pieces")
    parser.add_argument("--checkpoint", type=Path, default=Path("demo_voice"), help="what is exported")
    parser.add_argument("--seconds", type=float, default=540, help="of this piece")
    parser.add_argument("--extractor-seconds", type=float, default=175)
    parser.add_argument("--until", type=float, default=0, help="end of a stage, in seconds since the epoch")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser


def _train(options: argparse.Namespace) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(int(time.time()))  # another order of data in each piece
    options.kept.mkdir(parents=True, exist_ok=True)
    try:
        if options.stage == "lm":
            lm.run(options.device, options.until, options.kept)
        else:
            corpus = _corpus(options)
            ON_CORPUS[options.stage](corpus, options.device, options.until, options.kept, options.work)
    except RuntimeError:
        if "NO_GRAPHS" in os.environ or options.device == "cpu":
            raise
        traceback.print_exc()
        print(f"{options.stage}: starts again without CUDA graphs", flush=True)
        os.environ["NO_GRAPHS"] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "demo_voice.training", *sys.argv[1:]])


def _corpus(options: argparse.Namespace) -> data.Corpus:
    corpus = data.Corpus(options.work / "corpus")
    print(f"{options.stage}: {len(corpus)} utterances, {corpus.tokens / 25 / 3600:.2f} h", flush=True)
    return corpus


def _features(options: argparse.Namespace) -> None:
    """Codes and embeddings of the whole corpus, for flow and speech LM."""
    corpus = _corpus(options)
    codes = speech_tokenizer.tokens(
        speech_tokenizer.trained(options.kept, options.device), corpus, options.device
    )
    print(f"features: {len(codes.unique())} codes in use, {speech_tokenizer.bits(codes):.1f} bits a token")
    torch.save(codes, options.work / "tokens.pt")
    encoder = speaker_encoder.trained(options.kept, options.device)
    torch.save(speaker_encoder.embeddings(encoder, corpus, options.device), options.work / "embeddings.pt")
    script = json.loads(options.script.read_text("utf-8"))
    Readings.of(corpus, codes.numpy()).save(options.kept / f"readings_{script['seed']}.npz")
    make_readings(script["validation"], options.kept, options.processes).save(options.kept / "validation.npz")


def _readings(options: argparse.Namespace) -> None:
    script = json.loads(options.script.read_text("utf-8"))
    readings = make_readings(script["more"], options.kept, options.processes, options.until)
    print(f"readings: {len(readings)}, {readings.count.sum() / 25 / 3600:.1f} h", flush=True)
    readings.save(options.kept / f"readings_{script['seed']}_more.npz")


def _everything(options: argparse.Namespace) -> int:
    """All pieces, each on a script of its own, and the export."""
    work = options.work
    for seed, stages in enumerate(RECIPE):
        options.train, options.seed = stages, seed
        options.script, options.work = options.kept / f"script_{seed}.json", work / str(seed)
        if not options.script.exists():
            data.write_script(options.script, options.utterances, options.more, options.wordnet, seed)
        if status := _piece(options):
            return status
    export.export(options.kept, options.checkpoint)
    return 0


def _piece(options: argparse.Namespace) -> int:
    """Data; beside it the vocoder and the extractors; then flow and speech LM, and more for it to read."""
    end = time.time() + options.seconds - SAVING_SECONDS
    running = []
    if set(options.train) & set(ON_CORPUS):
        corpus = options.work / "corpus"
        data.make_corpus(options.script, corpus, options.processes, FIRST_SHARE)
        if "vocoder" in options.train:
            running.append(_start(options, "vocoder", end))
        extractors_end = min(time.time() + options.extractor_seconds, end)
        first = [_start(options, name, extractors_end) for name in EXTRACTORS if name in options.train]
        data.make_corpus(options.script, corpus, options.processes)
        if any(process.wait() for process in first) or _start(options, "features", end).wait():
            return 1
    running += [_start(options, name, end) for name in ("flow", "lm") if name in options.train]
    if "lm" not in options.train and json.loads(options.script.read_text("utf-8"))["more"]:
        running.append(_start(options, "readings", end - LAST_READING_SECONDS))
    failed = [process.args for process in running if process.wait()]
    plot_losses([options.kept / f"{name}.log" for name in STAGES], options.kept / "losses.png")
    return 1 if failed else 0


def _start(options: argparse.Namespace, stage: str, until: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "demo_voice.training", stage, "--until", str(until)]
    for name in ("script", "work", "kept", "device", "processes"):
        command += [f"--{name}", str(getattr(options, name))]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "2"})


if __name__ == "__main__":
    sys.exit(main())
