"""From settings and a checkpoint to a service that is warm."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import torch

from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.cuda_graphs import CudaGraphCapture, EagerCalls
from cosyvoice_runtime.flow.flow import Flow, FlowPrompt
from cosyvoice_runtime.flow.graphed_calls import CallBuckets
from cosyvoice_runtime.flow.paged_call import PagedSolver
from cosyvoice_runtime.flow.stream import FlowStream
from cosyvoice_runtime.gpu_parts import GpuParts
from cosyvoice_runtime.kernels.choice import decoder_obstacle, fused_chosen, solver_obstacle
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.pipeline.token2wav import Token2Wav
from cosyvoice_runtime.serving.served_family import require_backend
from cosyvoice_runtime.serving.shared_gpu import NOT_SHARED, SharedGpu, SharedGpus
from cosyvoice_runtime.serving.token2wav.device import as_current
from cosyvoice_runtime.serving.token2wav.memory import page_count, turn_rows
from cosyvoice_runtime.serving.token2wav.scheduler import WaveRouter, WaveScheduler
from cosyvoice_runtime.serving.token2wav.service import WaveMetrics, WaveService
from cosyvoice_runtime.serving.token2wav.utterances import VoiceCache
from cosyvoice_runtime.settings import Token2WavSettings
from cosyvoice_runtime.settings.model import gpu_number
from cosyvoice_runtime.vocoder.hift import HiFT

if TYPE_CHECKING:
    from cosyvoice_runtime.compiled.token2wav_engines import Token2WavEngines

logger = logging.getLogger(__name__)

FUSED_HELP = "Whether fused kernels take the flow's steps: 1, or 0 for the plain modules."
FUSED_VOCODER_HELP = "Whether fused kernels take the vocoder's decoder: 1, or 0 for the plain modules."


def load_wave_service(
    settings: Token2WavSettings, metrics: Metrics, shared: SharedGpus = NOT_SHARED
) -> WaveRouter:
    """Schedulers at work, one for each device, with all limits of the settings each.

    Args:
        shared: of GPUs that another network computes on in this process, by number.

    Raises:
        CheckpointError: a file is missing or damaged.
        EngineFileError: the backend's engines are missing or of something else.
        InvalidInput: a setting does not fit the checkpoint.
    """
    require_backend(settings)
    gpus = [shared.get(gpu_number(device)) for device in settings.devices]
    warm = [
        load_warm(placed, None if gpu is None else gpu.parts)
        for placed, gpu in zip(settings.on_each_device(), gpus, strict=True)
    ]
    for token2wav, device in zip(warm, settings.devices, strict=True):
        fused = metrics.gauge("cosyvoice_token2wav_fused_kernels", FUSED_HELP, device=device)
        fused.set(token2wav.flow.fused)
        vocoder = metrics.gauge("cosyvoice_token2wav_fused_vocoder", FUSED_VOCODER_HELP, device=device)
        vocoder.set(token2wav.vocoder.fused)
    return WaveRouter(
        [
            start_scheduler(token2wav, settings, WaveMetrics(metrics, device), gpu)
            for token2wav, device, gpu in zip(warm, settings.devices, gpus, strict=True)
        ]
    )


def load_warm(settings: Token2WavSettings, parts: GpuParts | None = None) -> Token2Wav:
    """The networks on the one device of the settings, ready to be fast.

    Args:
        parts: of the device, which is a GPU, if turns have only the large one.
    """
    with as_current(torch.device(settings.device)):
        token2wav = load_token2wav(settings)
        on_gpu = token2wav.flow.flow.device.type == "cuda"
        # Otherwise transposed convolutions may add in any order, and the same speech differ in its last bits.
        torch.backends.cudnn.deterministic = True
        if on_gpu and settings.backend == "torch":
            capture_graphs(token2wav, settings, parts)
        # Elsewhere the first batch costs little more than later ones, and a large one takes long.
        warm_up(token2wav, turn_rows(token2wav.flow.flow, settings) if on_gpu else 1)
    return token2wav


def load_token2wav(settings: Token2WavSettings) -> Token2Wav:
    """The networks on the one device of the settings."""
    layout, config = Layout(settings.checkpoint_dir), load_config(settings.checkpoint_dir)
    device, dtype = settings.device, getattr(torch, settings.dtype)
    eager = EagerCalls()
    engines = _open_engines(settings, config, eager)
    flow = Flow.from_tensors(
        config.flow, load_tensors(layout, "flow", config), device, dtype, settings.ode_steps, engines
    )
    flow.wait_for(settings.flow_lookahead)
    decoder = None if engines is None else engines.decoding()
    [on] = settings.vocoder_devices
    vocoder = HiFT.from_tensors(config.vocoder, load_tensors(layout, "hift", config), on, dtype, decoder)
    if flow.device != vocoder.device:
        logger.info("flow on %s, vocoder on %s", flow.device, vocoder.device)
    pages = page_count(flow, settings)
    return Token2Wav(FlowStream(flow, pages, eager), vocoder, settings.lookahead)


def start_scheduler(
    token2wav: Token2Wav,
    settings: Token2WavSettings,
    metrics: WaveMetrics,
    shared: SharedGpu | None = None,
) -> WaveScheduler:
    """A scheduler at work over networks that are loaded."""
    voices = VoiceCache(token2wav.flow, settings.max_cached_voices)
    service = WaveService(token2wav, voices, settings.max_states, settings.idle_timeout_s, metrics.show)
    return WaveScheduler(
        service,
        turn_rows(token2wav.flow.flow, settings),
        settings.max_queue_size,
        settings.longest_turn_ms / 1e3,
        token2wav.flow.flow.config.encoder.chunk_tokens,
        metrics.show_waiting,
        metrics.show_turn,
        token2wav.flow.flow.device,
        shared,
    )


def _open_engines(
    settings: Token2WavSettings, config: ModelConfig, eager: EagerCalls
) -> Token2WavEngines | None:
    """None for the torch modules, which need none."""
    if settings.backend == "torch":
        return None
    # brings onnx, which nothing else here needs
    from cosyvoice_runtime.compiled.token2wav_engines import open_engines

    return open_engines(settings, config, eager)


def capture_graphs(token2wav: Token2Wav, settings: Token2WavSettings, parts: GpuParts | None = None) -> None:
    """Capture what a GPU repeats, if the settings say so; on the large one of a GPU's parts."""
    if not settings.cuda_graphs:
        logger.info("backend torch: every kernel is launched")
        return
    started = time.monotonic()
    flow, vocoder = token2wav.flow.flow.device, token2wav.vocoder.device
    stream = None if parts is None else parts.large.stream
    captures = {
        device: CudaGraphCapture(device, stream if device == flow else None) for device in {flow, vocoder}
    }
    fused = _fused_solver(token2wav.flow.flow, settings)
    buckets = CallBuckets.up_to(turn_rows(token2wav.flow.flow, settings), any_past=fused is not None)
    _fuse_decoder(token2wav.vocoder, settings)
    calls = token2wav.capture(buckets, captures[flow], fused, captures[vocoder])
    logger.info("backend torch: CUDA graphs of %d calls in %.1f s", calls, time.monotonic() - started)


def _fused_solver(flow: Flow, settings: Token2WavSettings) -> PagedSolver | None:
    """None where the plain modules take the steps."""
    obstacle = solver_obstacle(flow.device, flow.dtype, flow.config.blockwise)
    if not fused_chosen(settings.kernels, "the flow's steps", flow.device, obstacle):
        return None
    # defines Triton kernels, which only the CUDA build of torch brings
    from cosyvoice_runtime.kernels.fused_solver import FusedSolver

    return FusedSolver.of(flow)


def _fuse_decoder(vocoder: HiFT, settings: Token2WavSettings) -> None:
    """Let fused kernels take the decoder where they can and the settings say so."""
    obstacle = decoder_obstacle(vocoder.device, getattr(torch, settings.dtype), vocoder.config)
    if not fused_chosen(settings.kernels, "the vocoder's decoder", vocoder.device, obstacle):
        return
    # defines Triton kernels, which only the CUDA build of torch brings
    from cosyvoice_runtime.kernels.fused_decoder import FusedDecoder

    vocoder.fuse(FusedDecoder.of(vocoder.decoder))


def warm_up(token2wav: Token2Wav, rows: int) -> None:
    """Speak ``rows`` short utterances, prompt and both kinds of chunk included; nothing stays."""
    started = time.monotonic()
    flow, config = token2wav.flow, token2wav.flow.flow.config
    chunk = config.encoder.chunk_tokens
    prompt = FlowPrompt(
        tokens=torch.zeros(chunk + config.lookahead_tokens, dtype=torch.int64),
        mel=torch.zeros(config.frames_per_token * (chunk + config.lookahead_tokens), config.mel_bins),
        speaker=torch.ones(config.speaker_dim),
    )
    prefix = flow.prefix(prompt)
    states = [token2wav.open(prefix, noise_seed=0) for _ in range(rows)]
    for tokens, last in (([0] * chunk, False), ([0], True)):
        for state in states:
            token2wav.push(state, tokens, last)
        token2wav.advance(states)
    for state in states:
        token2wav.close(state)
    flow.close(prefix)
    flow.recomputing = flow.calls = flow.eager.count = 0
    logger.info("warm after %.1f s", time.monotonic() - started)
