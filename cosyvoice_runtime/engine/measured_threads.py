"""The threads of an operation on ONNX Runtime, which a short measurement finds where the setting is ``auto``.

The measurement is made once, when the networks' files are there, and kept with them.
"""

from __future__ import annotations

import json
import logging
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.errors import CheckpointError, EngineFileError
from cosyvoice_runtime.onnx.cpu_features import CPU_INFO
from cosyvoice_runtime.settings import Machine, Settings, TensorrtLlmSettings, Token2WavSettings
from cosyvoice_runtime.settings.model import MANIFEST
from cosyvoice_runtime.settings.section import AUTO_NUMBER
from cosyvoice_runtime.settings.token2wav import ONNX_GRAPHS

logger = logging.getLogger(__name__)

FILE = "threads.json"
WORTH = 0.9
"""More threads must take less than this share of the time: they are cores that others lack."""
ROUNDS, LONGEST_S = 5, 1.0
"""Most rounds of a measurement, and the seconds after which no further round begins."""
STEP_AT = 200
"""Position of the speech LM's step."""

Work = Callable[[int], Callable[[], object]]
"""A function from a number of threads to the call that is timed."""


class Trial(NamedTuple):
    """A measurement.

    Attributes:
        section: settings of the network's model.
        directory: folder of the network's files.
        most: threads to try.
        at_once: operations that run concurrently.
        work: opened for each number of threads.
        require: raises :class:`EngineFileError` if the files are not of the checkpoint.
    """

    section: TensorrtLlmSettings | Token2WavSettings
    directory: Path
    most: int
    at_once: int
    work: Work
    require: Callable[[], object]


def with_measured_threads(given: Settings, machine: Machine) -> Settings:
    """The settings without ``auto``; threads on ONNX Runtime are measured if its files are there."""
    resolved = given.resolved(machine)
    changed: dict[str, str] = {}
    for trial in _trials(resolved, machine):
        name = trial.section.name
        if getattr(given, name).threads == AUTO_NUMBER and (trial.directory / MANIFEST).is_file():
            threads = measured(trial, machine)
            if threads is not None:
                changed[f"{name}.threads"] = str(threads)
    chosen = resolved.with_texts(changed)
    given.tell_choices(chosen, machine)
    return chosen


def measured(trial: Trial, machine: Machine) -> int | None:
    """Threads found before on such a machine, or now; None if the files can't be used."""
    file, wanted = trial.directory / FILE, _conditions(trial, machine)
    found = _kept(file, wanted, counts(trial.most))
    if found is None:
        try:
            trial.require()
            times = {count: _milliseconds(trial, count) for count in counts(trial.most)}
        except (CheckpointError, EngineFileError) as error:  # Loading the files fails, too.
            logger.warning("%s.threads: nothing to measure: %s", trial.section.name, error)
            return None
        found = {**wanted, "ms": {str(count): round(ms, 3) for count, ms in times.items()}}
        _keep(file, found)
    times = {int(count): ms for count, ms in found["ms"].items()}
    threads = fewest(times)
    shown = ", ".join(f"with {count} {ms:.3g} ms" for count, ms in times.items())
    logger.info("%s.threads: measured, %s: %d (%s)", trial.section.name, shown, threads, file)
    return threads


def counts(most: int) -> list[int]:
    """The powers of two up to ``most``, and ``most``."""
    powers = [1 << power for power in range(most.bit_length())]
    return sorted({*(count for count in powers if count <= most), most})


def fewest(times: Mapping[int, float]) -> int:
    """The fewest threads that no larger number beats by much."""
    chosen, *others = sorted(times)
    for count in others:
        if times[count] < WORTH * times[chosen]:
            chosen = count
    return chosen


def _trials(settings: Settings, machine: Machine) -> Sequence[Trial]:
    """The measurements; the speech LM has half the cores at most, because token2wav computes at the same
    time."""
    lm, wave, found, cores = settings.tensorrt_llm, settings.token2wav, [], machine.cores
    if lm.engine == "onnx":
        found.append(
            Trial(lm, lm.engine_dir, cores // 2, 1, partial(lm_step, lm), partial(require_lm_files, lm))
        )
    if wave.backend == "onnx":
        folder, at_once = wave.backend_dir / ONNX_GRAPHS, len(wave.devices)
        found.append(
            Trial(wave, folder, cores, at_once, partial(flow_blocks, wave), partial(require_graphs, wave))
        )
    return [trial for trial in found if trial.most > 1]


def require_lm_files(settings: TensorrtLlmSettings) -> None:
    from cosyvoice_runtime.lm.onnx.files import require_lm

    require_lm(settings.checkpoint_dir, settings.engine_dir, settings.weight_format)


def require_graphs(settings: Token2WavSettings) -> None:
    from cosyvoice_runtime.onnx.session import EstimatorFormats
    from cosyvoice_runtime.token2wav.onnx_files import require_wave

    formats = EstimatorFormats(settings.weight_format, settings.page_format)
    require_wave(settings.checkpoint_dir, settings.backend_dir, formats)


def lm_step(settings: TensorrtLlmSettings, threads: int) -> Callable[[], object]:
    """A step of one sequence."""
    from cosyvoice_runtime.lm.onnx.files import LmFiles
    from cosyvoice_runtime.lm.onnx.speech_lm import BoundPass, OnnxKVCache, OnnxSpeechLM

    config = load_config(settings.checkpoint_dir).speech_lm
    lm = OnnxSpeechLM(config, LmFiles(settings.engine_dir), threads)
    cache = OnnxKVCache(config, 1, STEP_AT + 1)
    step = BoundPass(lm, cache, 0, 1, 1)
    embedding, last = np.zeros((1, 1, config.hidden_size), np.float32), np.array([STEP_AT])
    # The pass refers to the memory of the cache, which the returned pair keeps alive.
    return lambda: (step.run(embedding, last), cache)


def flow_blocks(settings: Token2WavSettings, threads: int) -> Callable[[], object]:
    """One evaluation of a block for each scheduler, concurrently."""
    from cosyvoice_runtime.flow.onnx.flow import OnnxFlow, OnnxFlowStream
    from cosyvoice_runtime.flow.voice_flow import FlowPrompt

    config = load_config(settings.checkpoint_dir).flow
    flow = OnnxFlow(config, settings.backend_dir / ONNX_GRAPHS, 1, threads)
    streams = [OnnxFlowStream(flow, 1) for _ in settings.devices]
    length = config.encoder.chunk_tokens + config.lookahead_tokens
    mel = np.zeros((config.frames(length), config.mel_bins), np.float32)
    prompt = FlowPrompt(np.zeros(length, np.int64), mel, np.ones(config.speaker_dim, np.float32))
    pool = ThreadPoolExecutor(len(streams))

    def block(stream: OnnxFlowStream) -> None:
        stream.close(stream.prefix(prompt))

    return lambda: list(pool.map(block, streams))


def _milliseconds(trial: Trial, threads: int) -> float:
    """The least time of some rounds, after one that is not timed."""
    work, taken = trial.work(threads), list[float]()
    work()
    while len(taken) < ROUNDS and sum(taken) < 1e3 * LONGEST_S:
        begun = time.perf_counter()
        work()
        taken.append(1e3 * (time.perf_counter() - begun))
    return min(taken)


def _conditions(trial: Trial, machine: Machine) -> dict[str, Any]:
    """The conditions of the times, apart from the files beside which they are kept."""
    return {
        "cpu": cpu_model(CPU_INFO.read_text() if CPU_INFO.exists() else ""),
        "cores": machine.cores,
        "at_once": trial.at_once,
        "onnxruntime": version("onnxruntime"),
    }


def cpu_model(cpu_info: str) -> str:
    """Return the processor's name, given the text of ``/proc/cpuinfo``."""
    found = re.search(r"^model name\s*:\s*(.+)$", cpu_info, re.MULTILINE)
    return found[1] if found else platform.machine()


def _kept(file: Path, wanted: Mapping[str, Any], wanted_counts: list[int]) -> dict[str, Any] | None:
    """The content of the file, if its machine and numbers of threads are the wanted ones."""
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        times = {int(count): float(ms) for count, ms in found["ms"].items()}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        logger.warning("%s: not readable, measured anew: %s", file, error)
        return None
    if list(times) != wanted_counts:
        logger.warning("%s: times with %s threads, not %s: measured anew", file, list(times), wanted_counts)
        return None
    return found if wanted == {key: found.get(key) for key in wanted} else None


def _keep(file: Path, found: Mapping[str, Any]) -> None:
    try:
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        logger.warning("%s: not written, so the next start measures again: %s", file, error)
