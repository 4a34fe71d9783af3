#!/usr/bin/env python3
"""Stage 1: make what the engines and backends in the settings need, for the GPU at hand.

    build_engines.py tensorrt_llm.engine=tensorrt_llm token2wav.backend=tensorrt \\
        checkpoint_dir=checkpoints/CosyVoice2-0.5B
    build_engines.py --only tensorrt_llm --explain tensorrt_llm.engine=tensorrt_llm

Reads the same settings as render_model_repo.py. What was made from the same files, for the same GPU and
sizes, by the same libraries, is left alone. Converted checkpoints and ONNX graphs need no GPU: they are
written before what needs one.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.errors import CosyVoiceError, EngineFileError, InvalidInput
from cosyvoice_runtime.settings import Machine, Settings, TensorrtLlmSettings, Token2WavSettings
from cosyvoice_runtime.settings.extractors import ExtractorSettings
from cosyvoice_runtime.settings.served_family import require_served

if TYPE_CHECKING:
    from cosyvoice_runtime.lm.engines.tensorrt_llm.build import BuildOptions
    from cosyvoice_runtime.lm.engines.tensorrt_llm.convert import ConversionOptions

# Functions import what they make things with: a machine without a GPU has no torch.


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        given, machine = Settings.read(options.settings, os.environ), Machine.here()
        settings = given.resolved(machine)
        given.tell_choices(settings, machine)
        require_served(settings)
        if options.explain:
            explain(settings.tensorrt_llm, options.tp_size)
            return 0
        for name in options.only:
            MAKERS[name](settings, options)
    except CosyVoiceError as error:
        print(f"build_engines: {error}", file=sys.stderr)
        return 2 if isinstance(error, InvalidInput) else 1  # as stage 3 ends with wrong settings
    return 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", choices=tuple(MAKERS), action="append", help="for this model alone; may be repeated"
    )
    parser.add_argument(
        "--tp-size",
        type=int,
        default=1,
        help="GPUs that share the speech LM; this server drives one, NVIDIA's launchers several (default: 1)",
    )
    parser.add_argument(
        "--explain", action="store_true", help="print the flags of trtllm-build and why; make nothing"
    )
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args(arguments)
    options.only = options.only or list(MAKERS)
    return options


def explain(settings: TensorrtLlmSettings, tp_size: int) -> None:
    from cosyvoice_runtime.lm.engines.tensorrt_llm.build import build_flags

    conversion = conversion_options(settings, tp_size)
    kind = conversion.layout, conversion.dtype, conversion.weight_only
    for flag in build_flags(build_options(settings), *kind):
        print(f"--{flag.name} {flag.value}\n    {flag.why}")


def make_speech_lm(settings: TensorrtLlmSettings, tp_size: int) -> None:
    if settings.engine == "torch":
        print("tensorrt_llm: engine torch reads the checkpoint as it is, nothing to do")
    elif settings.engine == "onnx":
        make_onnx(settings)
    elif settings.engine == "vllm":
        make_vllm(settings)
    else:
        make_tensorrt_llm(settings, tp_size)


def make_onnx(settings: TensorrtLlmSettings) -> None:
    from cosyvoice_runtime.lm.onnx.export import export_lm

    written = export_lm(settings.checkpoint_dir, settings.engine_dir, settings.weight_format)
    tell(settings.engine_dir, written)


def make_vllm(settings: TensorrtLlmSettings) -> None:
    from cosyvoice_runtime.lm.engines.vllm.export import export

    tell(settings.engine_dir, export(settings.checkpoint_dir, settings.engine_dir, settings.dtype))
    check_vllm()


def make_tensorrt_llm(settings: TensorrtLlmSettings, tp_size: int) -> None:
    """Convert, then build; the converted checkpoint lies beside the engine."""
    from cosyvoice_runtime.lm.engines.tensorrt_llm.build import build
    from cosyvoice_runtime.lm.engines.tensorrt_llm.convert import convert

    converted = settings.engine_dir.with_name(f"{settings.engine_dir.name}_checkpoint")
    wanted = conversion_options(settings, tp_size)
    tell(converted, convert(settings.checkpoint_dir, converted, wanted, show))
    require = partial(require_preflight, ["--checkpoint", str(converted)])
    engine = settings.engine_dir
    tell(engine, build(converted, engine, build_options(settings), before=require))


def conversion_options(settings: TensorrtLlmSettings, tp_size: int) -> ConversionOptions:
    from cosyvoice_runtime.lm.engines.tensorrt_llm.convert import ConversionOptions

    return ConversionOptions(settings.vocabulary, settings.dtype, tp_size, settings.weight_only)


def build_options(settings: TensorrtLlmSettings) -> BuildOptions:
    from cosyvoice_runtime.lm.engines.tensorrt_llm.build import BuildOptions

    longest = settings.max_sequence_tokens
    return BuildOptions(settings.max_slots, longest, max(longest, BuildOptions.max_num_tokens))


def check_vllm() -> None:
    """A server's start takes half a minute: what would fail in it is looked for first, where vLLM is."""
    if importlib.util.find_spec("vllm") is None:
        print("vllm: not installed here, so nothing is checked")
    else:
        require_preflight(["--engine", "vllm"])


def preflight(arguments: list[str]) -> int:
    """Exit status of the table that it prints."""
    from cosyvoice_runtime.preflight.__main__ import main

    return main(arguments)


def require_preflight(arguments: list[str]) -> None:
    """A build takes minutes: what would fail in it or after it is looked for first.

    Raises:
        EngineFileError: something would.
    """
    # It imports torch by way of TensorRT's engines, which a machine that builds for a CPU may lack.
    from cosyvoice_runtime.preflight.__main__ import FAILED

    if preflight(arguments) == FAILED:
        raise EngineFileError("the preflight failed, so nothing is built; its table says why")


def make_networks(settings: Token2WavSettings) -> None:
    if settings.backend == "torch":
        print("token2wav: backend torch reads the checkpoint as it is, nothing to do")
        return
    if settings.backend == "onnx":
        make_wave_graphs(settings)
        return
    import torch

    from cosyvoice_runtime.tensorrt.engine import Cuda
    from cosyvoice_runtime.tensorrt.engine_files import build, engine_of
    from cosyvoice_runtime.tensorrt.graph_files import export_graph, graph_of
    from cosyvoice_runtime.tensorrt.token2wav_engines import shapes_of

    directory, shapes = settings.backend_dir, shapes_of(settings, load_config(settings.checkpoint_dir))
    # The first of several; a server refuses the engine on GPUs of another kind.
    cuda = Cuda(torch.device(settings.devices[0]))
    for name, profiles in shapes.profiles().items():
        tell(
            graph_of(directory, name), export_graph(settings.checkpoint_dir, directory, name, settings.dtype)
        )
        tell(engine_of(directory, name), build(directory, name, profiles, cuda))


def make_wave_graphs(settings: Token2WavSettings) -> None:
    from cosyvoice_runtime.onnx.session import EstimatorFormats
    from cosyvoice_runtime.token2wav.onnx_export import export_wave
    from cosyvoice_runtime.token2wav.onnx_files import wave_directory

    formats = EstimatorFormats(settings.weight_format, settings.page_format)
    written = export_wave(settings.checkpoint_dir, settings.backend_dir, formats)
    tell(wave_directory(settings.backend_dir), written)


def make_extractor(settings: ExtractorSettings, name: str) -> None:
    if settings.backend == "onnx":
        print(f"{settings.name}: backend onnx reads the checkpoint as it is, nothing to do")
        return
    import torch

    from cosyvoice_runtime.tensorrt.engine import Cuda
    from cosyvoice_runtime.tensorrt.engine_files import build, engine_of
    from cosyvoice_runtime.tensorrt.extractor_graphs import PROFILE
    from cosyvoice_runtime.tensorrt.graph_files import export_graph, graph_of

    directory, cuda = settings.backend_dir, Cuda(torch.device(settings.device))
    tell(graph_of(directory, name), export_graph(settings.checkpoint_dir, directory, name, "float32"))
    tell(engine_of(directory, name), build(directory, name, [PROFILE], cuda))


def show(name: str, number: int, total: int) -> None:
    """One line that tells how far the writing is; a line each where it is not a terminal's."""
    end = "\n" if number == total or not sys.stdout.isatty() else "\r"
    print(f"  [{number}/{total}] {name:60}", end=end, flush=True)


def tell(path: Path, reasons: list[str]) -> None:
    for reason in reasons:
        print(f"  made because: {reason}")
    print(f"{path}: {'complete' if reasons else 'unchanged, nothing to do'}")


MAKERS: dict[str, Callable[[Settings, argparse.Namespace], None]] = {
    "tensorrt_llm": lambda settings, options: make_speech_lm(settings.tensorrt_llm, options.tp_size),
    "token2wav": lambda settings, _: make_networks(settings.token2wav),
    "audio_tokenizer": lambda settings, _: make_extractor(settings.audio_tokenizer, "speech_tokenizer"),
    "speaker_embedding": lambda settings, _: make_extractor(settings.speaker_embedding, "speaker_encoder"),
}
"""By the model that they are for."""


if __name__ == "__main__":
    sys.exit(main())
