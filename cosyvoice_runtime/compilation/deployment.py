"""The facts of a deployment on which kernels depend, read without torch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.voice_adapters import AdapterForm, read_voice_adapters
from cosyvoice_runtime.flow.solvers import step_count
from cosyvoice_runtime.gpu.nvidia import GpuLimits, gpu_limits
from cosyvoice_runtime.settings import TensorrtLlmSettings, Token2WavSettings
from cosyvoice_runtime.settings.gpu_memory import GIB, rows_on
from cosyvoice_runtime.settings.model import gpu_number
from cosyvoice_runtime.settings.repository import read_parameters

LIBRARY = Path(__file__).resolve().parents[1]
WRITTEN = ("gpu/kernels", "flow/kernels", "lm/kernels", "vocoder/kernels")
"""Folders of the library whose files say what is compiled."""
OF_LM = (
    "engine", "dtype", "cuda_graphs", "kernels", "gpu_share",
    "max_slots", "max_sequence_tokens", "kv_cache_tokens",
)  # fmt: skip
OF_WAVE = "backend", "dtype", "cuda_graphs", "kernels", "solver", "page_format", "lookahead_frames"


class Deployment(NamedTuple):
    """A checkpoint's configuration, resolved settings, the GPU, and the form of adapters by voice."""

    config: ModelConfig
    lm: TensorrtLlmSettings
    wave: Token2WavSettings
    gpu: GpuLimits
    adapters: AdapterForm = AdapterForm()

    @classmethod
    def read(cls, repository: Path) -> Deployment:
        """That of a rendered repository on the GPU of its settings; an EngineFileError without one."""
        lm = TensorrtLlmSettings.from_parameters(read_parameters(repository / TensorrtLlmSettings.name))
        wave = Token2WavSettings.from_parameters(read_parameters(repository / Token2WavSettings.name))
        config, gpu = load_config(wave.checkpoint_dir), gpu_limits(gpu_number(wave.device) or 0)
        if lm.engine != "torch":
            return cls(config, lm, wave, gpu)
        adapters = read_voice_adapters(Layout(wave.checkpoint_dir), config.speech_lm)
        return cls(config, lm, wave, gpu, adapters.form)

    @property
    def rows(self) -> int:
        """Most utterances in a batch."""
        limit = int(self.wave.max_gpu_gib * GIB) or self.gpu.total_bytes
        return rows_on(min(limit, self.gpu.total_bytes), self.wave.most_batch)

    @property
    def key(self) -> str:
        """Deployments that compile the same kernels, with the same programs, have one key."""
        return hashlib.sha256("\n".join(self._facts()).encode()).hexdigest()[:32]

    def _facts(self) -> Iterator[str]:
        yield repr(self.config)
        yield repr([getattr(self.lm, name) for name in OF_LM])
        yield repr([getattr(self.wave, name) for name in OF_WAVE])
        yield str(step_count(self.wave.num_steps, self.config.flow.times))
        yield repr(self.adapters)
        yield repr((self.rows, *self.gpu._replace(total_bytes=0)))
        if self.wave.kernels_file != "none":
            yield Path(self.wave.kernels_file).read_text("utf-8")
        for package in ("torch", "triton"):
            try:
                yield version(package)
            except PackageNotFoundError:
                yield ""
        for folder in WRITTEN:
            for path in sorted((LIBRARY / folder).glob("*.py")):
                yield path.read_text("utf-8")
