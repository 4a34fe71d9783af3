#!/usr/bin/env python3
"""Stage 1: make what the engines and backends in the settings need, for the GPU at hand.

    build_engines.py tensorrt_llm.engine=tensorrt_llm token2wav.backend=tensorrt \\
        checkpoint_dir=checkpoints/CosyVoice2-0.5B

Reads the same settings as render_model_repo.py. What was made from the same files, for the same GPU and
sizes, by the same libraries, is left alone.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from functools import partial
from pathlib import Path

import torch

from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.compiled.engine_files import build, engine_of
from cosyvoice_runtime.compiled.export import extractors
from cosyvoice_runtime.compiled.export.graph_files import NETWORKS, export_graph, graph_of
from cosyvoice_runtime.compiled.install import shapes_of
from cosyvoice_runtime.errors import CosyVoiceError, EngineFileError
from cosyvoice_runtime.preflight.__main__ import main as preflight
from cosyvoice_runtime.preflight.outcome import FAILED
from cosyvoice_runtime.serving.lm.engines.tensorrt_llm.build.engine_build import build as build_speech_lm
from cosyvoice_runtime.serving.lm.engines.tensorrt_llm.build.flags import BuildOptions
from cosyvoice_runtime.serving.lm.engines.tensorrt_llm.conversion import ConversionOptions, convert
from cosyvoice_runtime.serving.lm.engines.vllm.export import export
from cosyvoice_runtime.settings import Machine, Settings, TensorrtLlmSettings, Token2WavSettings
from cosyvoice_runtime.settings.extractors import ExtractorSettings


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        settings = Settings.read(options.settings, os.environ).resolved(Machine.here())
        make_speech_lm(settings.tensorrt_llm)
        make_networks(settings.token2wav)
        make_extractor(settings.audio_tokenizer, extractors.TOKENIZER_NAME)
        make_extractor(settings.speaker_embedding, extractors.ENCODER_NAME)
    except CosyVoiceError as error:
        print(f"build_engines: {error}", file=sys.stderr)
        return 1
    return 0


def make_speech_lm(settings: TensorrtLlmSettings) -> None:
    if settings.engine == "torch":
        print("tensorrt_llm: engine torch reads the checkpoint as it is, nothing to do")
    elif settings.engine == "vllm":
        tell(settings.engine_dir, export(settings.checkpoint_dir, settings.engine_dir, settings.dtype))
    else:
        make_tensorrt_llm(settings)


def make_tensorrt_llm(settings: TensorrtLlmSettings) -> None:
    """Convert, then build; the converted checkpoint lies beside the engine."""
    converted = settings.engine_dir.with_name(f"{settings.engine_dir.name}_checkpoint")
    tell(converted, convert(settings.checkpoint_dir, converted, ConversionOptions(dtype=settings.dtype)))
    longest = settings.max_sequence_tokens
    options = BuildOptions(settings.max_slots, longest, max(longest, BuildOptions.max_num_tokens))
    require = partial(require_preflight, converted)
    tell(settings.engine_dir, build_speech_lm(converted, settings.engine_dir, options, before=require))


def require_preflight(converted: Path) -> None:
    """A build takes minutes: what would fail in it or after it is looked for first.

    Raises:
        EngineFileError: something would.
    """
    if preflight(["--checkpoint", str(converted)]) == FAILED:
        raise EngineFileError("the preflight failed, so nothing is built; its table says why")


def make_networks(settings: Token2WavSettings) -> None:
    if settings.backend == "torch":
        print("token2wav: backend torch reads the checkpoint as it is, nothing to do")
        return
    directory, shapes = settings.backend_dir, shapes_of(settings, load_config(settings.checkpoint_dir))
    device = torch.device(settings.devices[0])  # of several; a server refuses the engine on other kinds
    for name in NETWORKS:
        tell(
            graph_of(directory, name), export_graph(settings.checkpoint_dir, directory, name, settings.dtype)
        )
        if settings.backend == "tensorrt":
            profiles = shapes.profiles()[name]
            tell(engine_of(directory, name), build(directory, name, profiles, device))


def make_extractor(settings: ExtractorSettings, name: str) -> None:
    if settings.backend == "onnx":
        print(f"{settings.name}: backend onnx reads the checkpoint as it is, nothing to do")
        return
    directory, device = settings.backend_dir, torch.device(settings.device)
    tell(graph_of(directory, name), export_graph(settings.checkpoint_dir, directory, name, "float32"))
    tell(engine_of(directory, name), build(directory, name, [extractors.PROFILE], device))


def tell(path: Path, reasons: list[str]) -> None:
    for reason in reasons:
        print(f"  made because: {reason}")
    print(f"{path}: {'complete' if reasons else 'unchanged, nothing to do'}")


if __name__ == "__main__":
    sys.exit(main())
