#!/usr/bin/env python3
"""What the demo voice's networks give on a CPU that this machine only pretends to be, against its own.

    python benchmarks/emulated_cpu.py --cpu Haswell
    python benchmarks/emulated_cpu.py --cpu Haswell --variant int8:tensorrt_llm.weight_format=int8

Needs qemu-user (Debian: ``apt install qemu-user``), which answers the question for the CPU's features
itself. Of each variant, settings as in ``cpu_utterances.py``: logits after a prompt and of four steps, and
mel and samples of 0.8 s of speech in one step of the solver; times mean nothing. The error is the root mean
square in parts of theirs.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.checkpoint import load_config
from cosyvoice_runtime.onnx_cpu.cpu_features import cpu_flags, kind_of
from cosyvoice_runtime.onnx_cpu.lm import BoundPass, OnnxKVCache, OnnxSpeechLM
from cosyvoice_runtime.onnx_cpu.lm_files import LmFiles
from cosyvoice_runtime.serving.token2wav.onnx_runtime import load_token2wav
from cosyvoice_runtime.settings import Settings
from cosyvoice_runtime.wave.prompt import FlowPrompt
from cpu import DEMO_VOICE, Variant
from cpu_utterances import prepare, random_voice
from measuring.report import table

EMULATORS = ("qemu-x86_64", "qemu-x86_64-static")
PROMPT, STEPS, VOICE, SPOKEN = 20, 4, 28, 20
"""Positions of the prompt and steps after it; speech tokens of the voice and of the utterance. An emulator
takes thousands of times as long."""
FOUND = ("logits", "mel", "samples")
"""What is compared. In 8 bits samples tell little: their phase adds up what F0 makes of the mel's digits."""
FORMATS = [
    Variant("float32"),
    Variant("int8", ("tensorrt_llm.weight_format=int8", "token2wav.weight_format=int8")),
]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.compute:
        variant, file = options.compute
        np.savez(file, **computed(settings_of(Variant.read(variant), options.files)))
        return 0
    emulator = next(filter(None, map(shutil.which, EMULATORS)), None)
    if emulator is None:
        print("emulated_cpu: qemu-user is not installed", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="emulated-") as name:
        folder = Path(name)
        rows = []
        for variant in options.variant or FORMATS:
            own = child([], variant, folder)
            rows.append([variant.name, "this machine's", str(own["kind"]), *("" for _ in FOUND)])
            for cpu in options.cpu:
                found = child([emulator, "-cpu", cpu], variant, folder)
                errors = (f"{error(found[key], own[key]):.1e}" for key in FOUND)
                rows.append([variant.name, cpu, str(found["kind"]), *errors])
    print(table(("", "CPU", "it has", *FOUND), rows))
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cpu", action="append", help="one of `qemu-x86_64 -cpu help` (Haswell)")
    parser.add_argument("--variant", type=Variant.read, action="append", metavar="NAME:KEY=VALUE,...")
    parser.add_argument("--compute", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--files", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.cpu = options.cpu or ["Haswell"]
    return options


def settings_of(variant: Variant, folder: Path) -> Settings:
    runtimes = ("tensorrt_llm.engine=onnx", "token2wav.backend=onnx", "threads=1", "token2wav.ode_steps=1")
    return prepare(Variant(variant.name, (*runtimes, *variant.settings)), DEMO_VOICE, folder)


def child(emulator: Sequence[str], variant: Variant, folder: Path) -> dict[str, Array]:
    """What a process of its own computes."""
    file = folder / "computed.npz"
    written = f"{variant.name}:{','.join(variant.settings)}"
    command = [*emulator, sys.executable, __file__, f"--files={folder}", "--compute", written, str(file)]
    subprocess.run(command, check=True)
    return dict(np.load(file))


def computed(settings: Settings) -> dict[str, Array]:
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    return {
        "kind": np.array(kind_of(cpu_flags())),
        "logits": logits(settings),
        **speech(settings),
    }


def logits(settings: Settings) -> Array:
    """``[1 + STEPS, V]``."""
    config = load_config(settings.tensorrt_llm.checkpoint_dir).speech_lm
    lm = OnnxSpeechLM(config, LmFiles(settings.tensorrt_llm.engine_dir), threads=1)
    cache = OnnxKVCache(config, 1, PROMPT + STEPS)
    ids = np.random.default_rng(0).integers(0, config.speech_tokens, PROMPT + STEPS)
    fed = lm.embed_speech(ids)
    found = [BoundPass(lm, cache, 0, 1, PROMPT).run(fed[None, :PROMPT], np.array([PROMPT - 1]))]
    step = BoundPass(lm, cache, 0, 1, 1)
    found += [step.run(fed[None, at : at + 1], np.array([at])) for at in range(PROMPT, PROMPT + STEPS)]
    return np.concatenate(found)


def speech(settings: Settings) -> dict[str, Array]:
    """Mel and samples of one utterance, the voice's block before it."""
    token2wav = load_token2wav(settings.token2wav)
    config = token2wav.flow.flow.config
    voice = random_voice(config)
    ids, mel = voice.speech_tokens[:VOICE].astype(np.int64), voice.prompt_mel[: config.frames(VOICE)]
    prefix = token2wav.flow.prefix(FlowPrompt(ids, mel, voice.speaker_embedding))
    state, flow_state = token2wav.open(prefix, noise_seed=0), token2wav.flow.open(prefix)
    tokens = np.random.default_rng(1).integers(0, config.token_vocab_size, SPOKEN).tolist()
    token2wav.push(state, tokens, last=True)
    flow_state.push(tokens, last=True)
    [found], [spoken_mel] = token2wav.advance([state]), token2wav.flow.advance([flow_state])
    return {"mel": spoken_mel, "samples": found}


def error(found: Array, expected: Array) -> float:
    return float(np.sqrt(((found - expected) ** 2).mean() / (expected**2).mean()))


if __name__ == "__main__":
    sys.exit(main())
