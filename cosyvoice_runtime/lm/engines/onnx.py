"""The engine ``onnx``: the speech LM on ONNX Runtime and numpy, on a CPU."""

from __future__ import annotations

import logging
from functools import partial

from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.lm.engines.engine import OpenEngine, check_cache_room
from cosyvoice_runtime.lm.onnx.files import require_lm
from cosyvoice_runtime.lm.onnx.speech_lm import OnnxSpeechLM, open_batch
from cosyvoice_runtime.lm.running_batch import RunningBatch
from cosyvoice_runtime.onnx.cpu_features import tell_cpu
from cosyvoice_runtime.settings import TensorrtLlmSettings

logger = logging.getLogger(__name__)


def prepare(settings: TensorrtLlmSettings) -> OpenEngine:
    """Open the graphs, as `engine.prepare_engine` says.

    Raises:
        EngineFileError: ``engine_dir`` holds no graph, a damaged one, or one of another checkpoint or format.
    """
    config = load_config(settings.checkpoint_dir).speech_lm
    check_cache_room(settings, config.max_positions)
    files = require_lm(settings.checkpoint_dir, settings.engine_dir, settings.weight_format)
    lm = OnnxSpeechLM(config, files, settings.threads)
    logger.info(
        "engine onnx: weights in %s, prompts' %s, %d threads",
        settings.weight_format,
        "the same" if lm.prompt_session is lm.session else "in float32",
        settings.threads,
    )
    tell_cpu(settings.name, settings.weight_format)
    return partial(_open, lm, settings.max_slots, settings.max_sequence_tokens)


def _open(lm: OnnxSpeechLM, slots: int, max_len: int) -> RunningBatch:
    batch = open_batch(lm, slots, max_len)
    logger.info(
        "engine onnx: %d slots of %d positions, %.0f MiB of cache", slots, max_len, batch.cache_bytes / 2**20
    )
    return batch
