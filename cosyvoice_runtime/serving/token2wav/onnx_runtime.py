"""token2wav on ONNX Runtime and numpy, on a CPU."""

from __future__ import annotations

import logging

from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.onnx_cpu.flow import OnnxFlow, OnnxFlowStream
from cosyvoice_runtime.onnx_cpu.vocoder import OnnxVocoder
from cosyvoice_runtime.onnx_cpu.wave_files import require_wave
from cosyvoice_runtime.serving.token2wav.memory import host_room, page_count
from cosyvoice_runtime.serving.token2wav.runtime import WaveRuntime, warm_up
from cosyvoice_runtime.settings import Token2WavSettings
from cosyvoice_runtime.wave.token2wav import Token2Wav

logger = logging.getLogger(__name__)


def open_runtime(settings: Token2WavSettings) -> WaveRuntime:
    """The networks, ready to be fast."""
    token2wav = load_token2wav(settings)
    warm_up(token2wav, 1)
    return WaveRuntime(settings.backend, token2wav, settings.most_batch)


def load_token2wav(settings: Token2WavSettings) -> Token2Wav:
    """The networks on the CPU.

    Raises:
        EngineFileError: the graphs are missing, or of something else than this checkpoint.
    """
    config = load_config(settings.checkpoint_dir)
    directory = require_wave(settings.checkpoint_dir, settings.backend_dir)
    flow = OnnxFlow(config.flow, directory, settings.ode_steps, settings.threads)
    room = host_room(settings.most_flow_memory)
    pages = page_count(config.flow, OnnxFlowStream(flow, 0).pool.page_bytes, room, settings.most_flow_pages)
    vocoder = OnnxVocoder(config.vocoder, directory, settings.threads)
    logger.info("backend onnx: flow and vocoder on ONNX Runtime, %d threads each", settings.threads)
    return Token2Wav(OnnxFlowStream(flow, pages), vocoder, settings.lookahead)
