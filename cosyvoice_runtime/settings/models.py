"""Sections of the five models. A field's name is its key in ``parameters`` and its ``${placeholder}``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings.rule import AUTO, auto_between, between, matching, one_of
from cosyvoice_runtime.settings.section import Section

if TYPE_CHECKING:
    from typing import Self

    from cosyvoice_runtime.settings.machine import Machine


EXACT = "exact"
CPU, GPU = "cpu", r"cuda(:\d+)?"
"""Patterns of a device's name."""
BACKEND_DIR = Path("engines/networks")


@dataclass(frozen=True)
class ModelSettings(Section):
    """Fields that every model has."""

    checkpoint_dir: Path = Path("checkpoint")
    """Directory of the weights, the tokenizer and the configuration."""
    log_level: str = one_of("info", "debug", "info", "warning", "error")
    """Least severe messages that a model writes to the server's log."""
    threads: int = auto_between(1, 256)
    """CPU threads of one operation; auto: half the cores for tensorrt_llm and token2wav on a CPU, else 1."""

    def resolved(self, machine: Machine) -> Self:
        threads = self.threads or self._auto_threads(machine)
        return dataclasses.replace(self, checkpoint_dir=self.checkpoint_dir.absolute(), threads=threads)

    def _auto_threads(self, machine: Machine) -> int:  # noqa: ARG002 - networks override it
        return 1


@dataclass(frozen=True)
class NetworkSettings(ModelSettings):
    """Fields of a model that runs a network on a device."""

    AUTO_GPU_DTYPE: ClassVar[str] = "float32"

    device: str = matching(AUTO, rf"{CPU}|{GPU}", "cpu, cuda or cuda:N", auto=True)
    """Where the network runs."""
    dtype: str = one_of(AUTO, AUTO, "float32", "float16", "bfloat16")
    """Number format of weights and activations."""

    def resolved(self, machine: Machine) -> Self:
        device = _device(self.device, machine)
        gpu_dtype = "float32" if device.startswith("cpu") else self.AUTO_GPU_DTYPE
        dtype = gpu_dtype if self.dtype == AUTO else self.dtype
        return dataclasses.replace(super().resolved(machine), device=device, dtype=dtype)

    def _auto_threads(self, machine: Machine) -> int:
        on_cpu = _device(self.device, machine).startswith("cpu")
        # Beside a GPU the CPU has small operations only, which threads slow down.
        return max(1, machine.cores // 2) if on_cpu else 1


@dataclass(frozen=True)
class CosyVoice2Settings(ModelSettings):
    """``cosyvoice2`` and ``cosyvoice2_offline``: front end, voices, and the course of an utterance."""

    name: ClassVar[str] = "cosyvoice2"

    voices_dir: Path = Path("voices")
    """Directory of the registered voices; made when missing."""
    default_voice: str = matching("default", r"\S+", "a name without spaces")
    """Voice of a request that brings no reference and names none."""
    max_voices: int = between(1000, 1, 1_000_000)
    """Voices kept on disk; the one unused for longest makes room."""
    max_voices_mib: int = between(2048, 1, 1_048_576)
    """Size of the voices kept on disk."""
    max_text_characters: int = between(5000, 1, 1_000_000)
    """Longest text of one request."""
    max_inflight_utterances: int = between(64, 1, 4096)
    """Utterances spoken at once by one instance; one more is refused with UNAVAILABLE."""
    child_timeout_s: float = between(30.0, 0.1, 3600.0)
    """Longest silence of another model before the utterance fails."""
    first_hop_tokens: int = between(18, 1, 100)
    """Fewest speech tokens of the first chunk, of which the vocoder holds 0.42 s back: 18 are 0.3 s heard."""
    cut_prompts: bool = False
    """Start a longer reference up to 1 s later in token2wav, for a first chunk of just first_hop_tokens."""
    hop_tokens: int = between(25, 1, 1000)
    """Speech tokens of a chunk (25 a second)."""
    max_hop_tokens: int = between(100, 1, 1000)
    """Longest chunk that the hop may grow to."""
    max_tokens: int = between(2048, 1, 100_000)
    """Most speech tokens of a piece of text; no more than tensorrt_llm's setting of this name."""
    sampling: str = one_of("ras", "ras", "nucleus")
    """How a speech token is drawn: repetition-aware, or plain top-k and top-p."""
    top_k: int = between(25, 1, 6561)
    """Most probable tokens that take part in the draw."""
    top_p: float = between(0.8, 0.01, 1.0)
    """Probability mass that takes part in the draw."""
    temperature: float = between(1.0, 0.01, 10.0)
    """Divisor of the logits."""
    repetition_penalty: float = between(1.0, 0.1, 10.0)
    """Divisor of the positive logits of tokens already spoken; 1 leaves them alone."""
    ras_window_tokens: int = between(10, 1, 1000)
    """Latest tokens in which repetition-aware sampling looks for the one drawn."""
    ras_threshold: float = between(0.1, 0.0, 1.0)
    """Share of the window at which the drawn token counts as repeated."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_order(self, "hop_tokens", "max_hop_tokens")

    def resolved(self, machine: Machine) -> Self:
        return dataclasses.replace(super().resolved(machine), voices_dir=self.voices_dir.absolute())


@dataclass(frozen=True)
class TensorrtLlmSettings(NetworkSettings):
    """``tensorrt_llm``: the speech language model and its in-flight batch."""

    name: ClassVar[str] = "tensorrt_llm"
    AUTO_GPU_DTYPE: ClassVar[str] = "bfloat16"

    engine: str = one_of("torch", "torch", "tensorrt_llm", "vllm")
    """What runs the network."""
    engine_dir: Path = Path("engines/speech_lm")
    """Directory of the built engine or, with vllm, of the exported weights; unused by engine torch."""
    max_slots: int = auto_between(1, 1024)
    """Requests decoded together; auto is 16 on a CPU and 64 on a GPU."""
    max_tokens: int = between(2048, 1, 100_000)
    """Most speech tokens of one request (25 a second)."""
    max_sequence_tokens: int = between(4096, 16, 1_000_000)
    """Most positions of one request: text, prompt speech and new speech."""
    kv_cache_tokens: int = auto_between(16, 100_000_000)
    """Positions that all requests share; auto fits max_slots of the longest."""
    cuda_graphs: bool = True
    """Engine torch on a GPU: replay recorded steps, several times faster than launching every kernel."""
    kv_cache_fraction: float = between(0.5, 0.01, 0.95)
    """Engine tensorrt_llm: most of the free GPU memory that kv_cache_tokens may take."""
    ras_callback: bool = True
    """Engine tensorrt_llm: draw ras requests in a callback (0.7 to 2 ms more a step); false refuses them."""
    max_queue_size: int = between(256, 1, 100_000)
    """Requests that may wait for a slot; one more is refused with UNAVAILABLE."""
    idle_timeout_s: float = between(30.0, 0.1, 3600.0)
    """Longest time a request may go unread before its slot is taken away."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_order(self, "max_tokens", "max_sequence_tokens")

    def resolved(self, machine: Machine) -> Self:
        network = super().resolved(machine)
        slots = self.max_slots or (16 if network.device == "cpu" else 64)
        cache = self.kv_cache_tokens or slots * self.max_sequence_tokens
        return dataclasses.replace(
            network, max_slots=slots, kv_cache_tokens=cache, engine_dir=self.engine_dir.absolute()
        )


@dataclass(frozen=True)
class BatchedSettings(ModelSettings):
    """Fields of a model behind Triton's dynamic batcher."""

    max_batch: int = between(8, 1, 1024)
    """Requests in one call."""
    max_queue_delay_us: int = between(1000, 0, 1_000_000)
    """Longest wait for a batch to fill."""
    max_queue_size: int = between(256, 1, 100_000)
    """Requests that may wait; one more is refused with UNAVAILABLE."""


@dataclass(frozen=True)
class ExtractorSettings(BatchedSettings):
    """Fields of a model that analyses reference recordings."""

    backend: str = one_of("onnx", "onnx", "tensorrt")
    """What runs the network: ONNX Runtime on the CPU, or an engine from stage 1."""
    backend_dir: Path = BACKEND_DIR
    """Directory of graphs and engines; unused by backend onnx."""
    device: str = matching(AUTO, rf"{CPU}|{GPU}", "cpu, cuda or cuda:N", auto=True)
    """Where backend tensorrt runs the network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.backend == "tensorrt":
            _require_device(self, "cuda")

    def resolved(self, machine: Machine) -> Self:
        device = _device(self.device, machine)
        resolved = super().resolved(machine)
        return dataclasses.replace(resolved, device=device, backend_dir=self.backend_dir.absolute())


@dataclass(frozen=True)
class AudioTokenizerSettings(ExtractorSettings):
    """``audio_tokenizer``: reference recording to speech tokens."""

    name: ClassVar[str] = "audio_tokenizer"


@dataclass(frozen=True)
class SpeakerEmbeddingSettings(ExtractorSettings):
    """``speaker_embedding``: reference recording to the vector of its speaker."""

    name: ClassVar[str] = "speaker_embedding"


@dataclass(frozen=True)
class Token2WavSettings(NetworkSettings, BatchedSettings):
    """``token2wav``: speech tokens to waveform, flow and vocoder."""

    name: ClassVar[str] = "token2wav"
    AUTO_GPU_DTYPE: ClassVar[str] = "float16"

    device: str = matching(
        AUTO, rf"{CPU}(,{CPU})*|{GPU}(,{GPU})*", "cpu, cuda, cuda:N, several GPUs with commas", auto=True
    )
    """Where the networks run; each device has copies of them, and an utterance stays on one."""
    max_queue_delay_us: int = between(0, 0, 1_000_000)
    """Longest wait of Triton for a batch to fill; the model forms batches of its own from what it holds."""
    max_turn_ms: float = between(200.0, 1.0, 60_000.0)
    """Longest computation that an urgent chunk may wait for; shorter is smoother, longer is faster."""
    ode_steps: int = between(10, 1, 100)
    """Euler steps of the flow."""
    lookahead_frames: str = matching(EXACT, rf"{EXACT}|\d{{1,2}}", f"{EXACT}, or a whole number from 0 to 99")
    """Mel frames that the vocoder holds back; exact (21 as published) leaves no join, fewer speak sooner."""
    max_states: int = between(128, 1, 4096)
    """Utterances whose state is kept between chunks."""
    idle_timeout_s: float = between(60.0, 0.1, 3600.0)
    """Longest time between two chunks before an utterance's state is dropped."""
    max_cached_voices: int = between(64, 1, 4096)
    """Voices kept in memory; the one unused for longest makes room."""
    max_flow_pages: int = between(512, 1, 1_000_000)
    """Most seconds of finished speech, prompts included, kept for utterances and voices together."""
    flow_memory_share: float = between(0.4, 0.01, 1.0)
    """Share of the device's memory that they may take (115 MiB a second as published in float16)."""
    backend: str = one_of("torch", "torch", "onnx", "tensorrt")
    """What runs the networks; tensorrt needs engines from stage 1, onnx its graphs and the CPU."""
    cuda_graphs: bool = True
    """Backend torch on a GPU: replay recorded work, several times faster than launching every kernel."""
    backend_dir: Path = BACKEND_DIR
    """Directory of graphs and engines; unused by backend torch."""
    backend_max_seconds: int = between(60, 10, 150)
    """Longest utterance, prompt included, that engines are built for; unused by backend torch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.backend == "torch":
            return
        if self.dtype == "bfloat16":
            raise InvalidInput(f"{self.name}.dtype", self.dtype, f"float32 or float16 with {self.backend}")
        _require_device(self, "cpu" if self.backend == "onnx" else "cuda")

    @property
    def devices(self) -> tuple[str, ...]:
        """Each device by itself."""
        return tuple(self.device.split(","))

    def on(self, device: str) -> Self:
        """A copy for one of the devices."""
        return dataclasses.replace(self, device=device)

    @property
    def lookahead(self) -> int | None:
        """Mel frames, or None for as many as the checkpoint's vocoder needs."""
        return None if self.lookahead_frames == EXACT else int(self.lookahead_frames)

    def resolved(self, machine: Machine) -> Self:
        return dataclasses.replace(super().resolved(machine), backend_dir=self.backend_dir.absolute())


def _device(wanted: str, machine: Machine) -> str:
    return ("cuda" if machine.gpu else "cpu") if wanted == AUTO else wanted


def _require_device(section: ExtractorSettings | Token2WavSettings, kind: str) -> None:
    if section.device != AUTO and not section.device.startswith(kind):
        raise InvalidInput(f"{section.name}.device", section.device, f"{kind} with backend {section.backend}")


def _require_order(section: Section, low: str, high: str) -> None:
    if getattr(section, low) > getattr(section, high):
        limit = f"at most {high}, which is {getattr(section, high)}"
        raise InvalidInput(f"{section.name}.{low}", getattr(section, low), limit)
