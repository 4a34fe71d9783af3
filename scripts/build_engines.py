#!/usr/bin/env python3
"""Make what the backends in the settings need: ONNX graphs, and TensorRT engines for the GPU at hand.

    build_engines.py token2wav.backend=tensorrt checkpoint_dir=checkpoints/CosyVoice2-0.5B

Reads the same settings as render_model_repo.py. What was made from the same files, for the same GPU and
sizes, by the same TensorRT, is left alone.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path

import torch

from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.engines.directory import build, engine_of
from cosyvoice_runtime.engines.install import shapes_of
from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.onnx_export import extractors
from cosyvoice_runtime.onnx_export.directory import NETWORKS, export_graph, graph_of
from cosyvoice_runtime.settings import Machine, Settings, Token2WavSettings
from cosyvoice_runtime.settings.models import ExtractorSettings


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        settings = Settings.read(options.settings, os.environ).resolved(Machine.here())
        make_networks(settings.token2wav)
        make_extractor(settings.audio_tokenizer, extractors.TOKENIZER_NAME)
        make_extractor(settings.speaker_embedding, extractors.ENCODER_NAME)
    except CosyVoiceError as error:
        print(f"build_engines: {error}", file=sys.stderr)
        return 1
    return 0


def make_networks(settings: Token2WavSettings) -> None:
    if settings.backend == "torch":
        print("token2wav: backend torch reads the checkpoint as it is, nothing to do")
        return
    directory, shapes = settings.backend_dir, shapes_of(settings, load_config(settings.checkpoint_dir))
    for name in NETWORKS:
        tell(
            graph_of(directory, name), export_graph(settings.checkpoint_dir, directory, name, settings.dtype)
        )
        if settings.backend == "tensorrt":
            profiles = shapes.profiles()[name]
            tell(engine_of(directory, name), build(directory, name, profiles, torch.device(settings.device)))


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
