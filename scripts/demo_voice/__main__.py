"""``python -m scripts.demo_voice``: text, data, all trainings side by side on one GPU, and the export.

A piece of training takes ``--seconds``, data included, and goes on from what the folder ``--kept`` holds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import torch

from scripts.demo_voice import data, export, flow, lm, speaker_encoder, speech_tokenizer, vocoder
from scripts.demo_voice.trainer import plot_losses

STAGES = {
    "speech_tokenizer": speech_tokenizer.run,
    "speaker_encoder": speaker_encoder.run,
    "lm": lm.run,
    "flow": flow.run,
    "vocoder": vocoder.run,
}
SAVING_SECONDS = 12
VOCODER_SHARE = 4
"""The vocoder starts when every so many parts of the corpus are there, and keeps to these."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one piece of training, or one stage of it."""
    options = _parser().parse_args(arguments)
    if options.stage == "text":
        data.write_script(options.script, options.utterances, options.wordnet, options.seed)
    elif options.stage == "data":
        data.make_corpus(options.script, options.work / "corpus", options.processes)
    elif options.stage == "export":
        export.export(options.kept, options.checkpoint)
    elif options.stage == "piece":
        return _piece(options)
    elif options.stage == "all":
        return _everything(options)
    else:
        _train(options)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m scripts.demo_voice", description=__doc__)
    parser.add_argument(
        "stage", nargs="?", default="all", choices=["all", "text", "data", "piece", *STAGES, "export"]
    )
    parser.add_argument("--script", type=Path, default=Path(".demo_training/script.json"))
    parser.add_argument("--wordnet", type=Path, default=Path("/usr/share/wordnet"))
    parser.add_argument("--utterances", type=int, default=36_000)
    parser.add_argument("--seed", type=int, default=0, help="who reads what: another one for each piece")
    parser.add_argument("--work", type=Path, default=Path("/tmp/demo_voice"), help="corpus and tokens")
    parser.add_argument("--kept", type=Path, default=Path(".demo_training"), help="weights between pieces")
    parser.add_argument("--checkpoint", type=Path, default=Path("demo_voice"), help="what is exported")
    parser.add_argument("--seconds", type=float, default=540, help="of this piece")
    parser.add_argument("--extractor-seconds", type=float, default=110, help="zero once they are good")
    parser.add_argument("--until", type=float, default=0, help="end of a stage, in seconds since the epoch")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser


def _train(options: argparse.Namespace) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(int(time.time()))  # another order of data in each piece
    options.kept.mkdir(parents=True, exist_ok=True)
    corpus = data.Corpus(options.work / "corpus")
    print(f"{options.stage}: {len(corpus)} utterances, {corpus.tokens / 25 / 3600:.2f} h", flush=True)
    try:
        STAGES[options.stage](corpus, options.device, options.until, options.kept, options.work)
    except RuntimeError:
        if "NO_GRAPHS" in os.environ or options.device == "cpu":
            raise
        traceback.print_exc()
        print(f"{options.stage}: starts again without CUDA graphs", flush=True)
        os.environ["NO_GRAPHS"] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "scripts.demo_voice", *sys.argv[1:]])


def _everything(options: argparse.Namespace) -> int:
    if not options.script.exists():
        data.write_script(options.script, options.utterances, options.wordnet, options.seed)
    status = _piece(options)
    export.export(options.kept, options.checkpoint)
    return status


def _piece(options: argparse.Namespace) -> int:
    """Data, then the vocoder beside the two extractors, then the speech LM and the flow beside it."""
    end = time.time() + options.seconds - SAVING_SECONDS
    corpus = options.work / "corpus"
    data.make_corpus(options.script, corpus, options.processes, VOCODER_SHARE)
    vocoding = _start(options, "vocoder", end)
    data.make_corpus(options.script, corpus, options.processes)
    extractors_end = min(time.time() + options.extractor_seconds, end)
    first = [_start(options, name, extractors_end) for name in ("speech_tokenizer", "speaker_encoder")]
    if any(process.wait() for process in first):
        return 1
    second = [vocoding, _start(options, "lm", end), _start(options, "flow", end)]
    failed = [process.args for process in second if process.wait()]
    plot_losses([options.kept / f"{name}.log" for name in STAGES], options.kept / "losses.png")
    return 1 if failed else 0


def _start(options: argparse.Namespace, stage: str, until: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "scripts.demo_voice", stage, "--until", str(until)]
    for name in ("work", "kept", "device"):
        command += [f"--{name}", str(getattr(options, name))]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "2"})


if __name__ == "__main__":
    sys.exit(main())
