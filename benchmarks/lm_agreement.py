"""Smoke test of a speech LM engine: its greedy tokens against the library's own network in float32.

    python benchmarks/lm_agreement.py --checkpoint checkpoints/CosyVoice2-0.5B \
        tensorrt_llm.engine=tensorrt_llm tensorrt_llm.engine_dir=engines/tensorrt_llm/engine device=cuda

An engine in 16 bits may take the second best of two that are almost equal, and says something else from then
on. So each token is judged where it stands: the test fails (status 1) when the network preferred another one
by more than --tolerance.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.merged_vocabulary import tokenizer_length
from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.engine import prepare_engine
from cosyvoice_runtime.lm.torch.network import SpeechLM
from cosyvoice_runtime.settings import Machine, Settings, TensorrtLlmSettings
from measuring.agreement import agreement, speak

TEXT_TOKENS, PROMPT_TEXT_TOKENS, PROMPT_SPEECH_TOKENS = 20, 12, 100
STOP_RUNAWAYS = 0
"""Random prompts may well end in one repeated token, which is to be compared as well."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parse(arguments)
    try:
        settings = read_settings(options)
        worst = run(options, settings)
    except CosyVoiceError as error:
        print(f"lm_agreement: {error}", file=sys.stderr)
        return 1
    print(f"worst {worst:.4f}, tolerated {options.tolerance:g}")
    return int(worst > options.tolerance)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--utterances", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=150, help="most speech tokens of each (%(default)s)")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=0.25,
        help="in logits: 8 bits of mantissa are 0.06 at a logit of 16 (%(default)s)",
    )
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="of the engine")
    return parser.parse_args(arguments)


def read_settings(options: argparse.Namespace) -> TensorrtLlmSettings:
    assignments = [f"checkpoint_dir={options.checkpoint}", *options.settings]
    return Settings.read(assignments).resolved(Machine.here()).tensorrt_llm


def run(options: argparse.Namespace, settings: TensorrtLlmSettings) -> float:
    """The worst difference over all utterances; each is printed."""
    prompts = make_prompts(options.checkpoint, options.utterances)
    sampling = SamplingOptions("greedy", min_tokens=0, max_tokens=options.tokens, runaway_span=STOP_RUNAWAYS)
    engine = prepare_engine(settings)()
    try:
        spoken = speak(engine, prompts, sampling)
    finally:
        engine.close()
    config = load_config(options.checkpoint)
    tensors = load_tensors(Layout(options.checkpoint), "llm", config)
    lm = SpeechLM.from_tensors(config.speech_lm, tensors, settings.device.partition(":")[0])
    found = [agreement(lm, prompt, sampling, one) for prompt, one in zip(prompts, spoken, strict=True)]
    for number, one in enumerate(found):
        print(f"{number:3}: {one.tokens:4} tokens, the first {one.equal:4} equal, worst {one.worst:.4f}")
    return max(one.worst for one in found)


def make_prompts(checkpoint: Path, count: int) -> list[Prompt]:
    """Random ids, with and without a voice; the same every time."""
    generator = torch.Generator().manual_seed(0)
    text_ids = tokenizer_length(Layout(checkpoint))
    codes = load_config(checkpoint).speech_lm.speech_tokens

    def draw(most: int, size: int) -> list[int]:
        return torch.randint(most, (size,), generator=generator).tolist()

    return [
        Prompt(
            draw(text_ids, TEXT_TOKENS),
            draw(text_ids, PROMPT_TEXT_TOKENS * (number % 2)),
            draw(codes, PROMPT_SPEECH_TOKENS * (number % 2)),
        )
        for number in range(count)
    ]


if __name__ == "__main__":
    sys.exit(main())
