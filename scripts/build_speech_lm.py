#!/usr/bin/env python3
"""Build the TensorRT-LLM engine of the speech LM from a converted checkpoint. Runs in NVIDIA's container.

    build_speech_lm.py engines/tensorrt_llm/checkpoint engines/tensorrt_llm/engine

--explain prints every flag of trtllm-build that is passed, and why, and builds nothing. An engine that was
built from the same files with the same flags, libraries and GPU is left alone.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cosyvoice_runtime.compiled.manifest import Manifest
from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.serving.lm.engines.tensorrt_llm.build.engine_build import build
from cosyvoice_runtime.serving.lm.engines.tensorrt_llm.build.flags import BuildOptions, build_flags


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    wanted = BuildOptions(options.max_batch_size, options.max_seq_len, options.max_num_tokens)
    try:
        if options.explain:
            explain(options.checkpoint, wanted)
            return 0
        reasons = build(options.checkpoint, options.out, wanted)
    except CosyVoiceError as error:
        print(f"build_speech_lm: {error}", file=sys.stderr)
        return 1
    for reason in reasons:
        print(f"  built because: {reason}")
    print(f"{options.out}: {'complete' if reasons else 'unchanged, nothing to do'}")
    return 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = BuildOptions()
    parser.add_argument("checkpoint", type=Path, help="what convert_checkpoint.py wrote")
    parser.add_argument("out", type=Path, help="directory of the engine")
    for name, about in (
        ("max_batch_size", "requests decoded together"),
        ("max_seq_len", "most positions of one request"),
        ("max_num_tokens", "most positions computed in one step"),
    ):
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=int,
            default=getattr(default, name),
            help=f"{about} (default: %(default)s)",
        )
    parser.add_argument("--explain", action="store_true", help="print the flags and the reasons for them")
    return parser.parse_args(arguments)


def explain(checkpoint: Path, options: BuildOptions) -> None:
    converted = Manifest.read(checkpoint).options
    for flag in build_flags(options, converted["layout"], converted["dtype"]):
        print(f"--{flag.name} {flag.value}\n    {flag.why}")


if __name__ == "__main__":
    sys.exit(main())
