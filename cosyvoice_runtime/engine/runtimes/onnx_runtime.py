"""token2wav on ONNX Runtime and numpy, on a CPU."""

from __future__ import annotations

import logging
from functools import partial

from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.engine.runtimes.runtime import WaveRuntime, host_room, page_count, warm_up
from cosyvoice_runtime.flow.onnx.flow import OnnxFlow, OnnxFlowStream
from cosyvoice_runtime.onnx.cpu_features import tell_cpu
from cosyvoice_runtime.onnx.session import EstimatorFormats
from cosyvoice_runtime.settings import Token2WavSettings
from cosyvoice_runtime.token2wav.onnx_files import require_wave
from cosyvoice_runtime.token2wav.token2wav import Token2Wav
from cosyvoice_runtime.vocoder.onnx.vocoder import OnnxVocoder

logger = logging.getLogger(__name__)


def open_runtimes(settings: Token2WavSettings) -> list[WaveRuntime]:
    """A warm runtime for each scheduler; they share the networks and the pages."""
    flow, vocoder = _networks(settings)
    stream = _stream(settings, flow)
    streams = [stream, *(stream.fork() for _ in settings.devices[1:])]
    ready = [Token2Wav(each, vocoder, settings.lookahead) for each in streams]
    warm_up(ready[0], 1)
    _give_back_memory(stream, vocoder)
    return [
        WaveRuntime(
            settings.backend,
            token2wav,
            settings.most_batch,
            trim=partial(_give_back_memory, stream, vocoder),
            shares_memory=True,
        )
        for token2wav in ready
    ]


def _give_back_memory(*parts: OnnxFlowStream | OnnxVocoder) -> None:
    for part in parts:
        part.give_back_memory()


def load_token2wav(settings: Token2WavSettings) -> Token2Wav:
    """The networks on the CPU; an EngineFileError if graphs are missing or not of the checkpoint."""
    flow, vocoder = _networks(settings)
    return Token2Wav(_stream(settings, flow), vocoder, settings.lookahead)


def _networks(settings: Token2WavSettings) -> tuple[OnnxFlow, OnnxVocoder]:
    config = load_config(settings.checkpoint_dir)
    formats = EstimatorFormats(settings.weight_format, settings.page_format)
    directory = require_wave(settings.checkpoint_dir, settings.backend_dir, formats)
    flow = OnnxFlow(config.flow, directory, settings.num_steps, settings.threads, settings.solver)
    vocoder = OnnxVocoder(config.vocoder, directory, settings.threads)
    logger.info(
        "backend onnx: flow (weights %s, pages %s) and vocoder on ONNX Runtime, %d threads each",
        *formats,
        settings.threads,
    )
    tell_cpu(settings.name, settings.weight_format)
    return flow, vocoder


def _stream(settings: Token2WavSettings, flow: OnnxFlow) -> OnnxFlowStream:
    room, most = host_room(settings.most_flow_memory), settings.most_flow_pages
    page_bytes = OnnxFlowStream(flow, 0).pool.page_bytes
    pages = page_count(flow.config, page_bytes, room, most)
    return OnnxFlowStream(flow, pages)
