"""The families of checkpoints: how a directory of each is told, and what its networks' sizes do not say.

The sizes are a :class:`~cosyvoice_runtime.checkpoint.config.ModelConfig`, whose parts have classes of the
family's own; the class of a part's configuration picks its network.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cosyvoice_runtime.audio.mel import MelFormat
from cosyvoice_runtime.checkpoint.pronunciation import UNITS
from cosyvoice_runtime.checkpoint.special_tokens import COSYVOICE3_TOKENS, END_OF_PROMPT, SPECIAL_TOKENS
from cosyvoice_runtime.checkpoint.whisper_tokens import LANGUAGE_TAGS, WHISPER_TOKENS

QWEN2_VOCABULARY = "CosyVoice-BlankEN/vocab.json"


@dataclass(frozen=True)
class SpeechLmNeeds:
    """What the published speech LM takes, for settings that leave it open.

    Attributes:
        positions: of a request with 1,240 ids of text and transcript, a reference of 30 s and 2,048 new
            tokens, rounded.
        slots: requests decoded together on a GPU.
        position_bytes: keys and values of a position in 16 bits.
        network_gib: weights in 16 bits, CUDA graphs and the driver's context, without the cache.
        fused_gib: weights of fused kernels, which have their own and read pages; 0: there are none.
    """

    positions: int
    slots: int
    position_bytes: int
    network_gib: float
    fused_gib: float = 0.0


QWEN2_NEEDS = SpeechLmNeeds(4096, 64, 24 * 2 * 2 * 64 * 2, 2.7, fused_gib=0.7)
"""24 layers, two heads of 64 that keep something; the network as measured in bfloat16 on an H200, and its 360
million parameters of layers and head once more."""
TRANSFORMER_NEEDS = SpeechLmNeeds(5000, 16, 14 * 2 * 16 * 64 * 2, 1.7)
"""14 layers, 16 heads of 64; all positions that it knows. The network is estimated from its 311 million
parameters; chunks are computed one after another, so that a GPU keeps up with few requests."""


@dataclass(frozen=True)
class Family:
    """What the checkpoints of a family have in common.

    Attributes:
        name: for the command line and messages.
        config_file: by which a directory is told to be of the family.
        speech_tokenizer: file of the ONNX speech tokenizer.
        speech_codes: that it knows.
        log_mel_frames_per_token: of its input (100 Hz).
        vocabulary: file of the text tokenizer.
        has_qwen2: whether the speech LM is a Qwen2, with that one's configuration and tokenizer.
        special_tokens: of the text tokenizer, in the order of their ids.
        language_tags: those of them that a text may begin with, to say its language.
        mel: of the prompt.
        prompt_frames_per_token: to which a prompt's tokens and mel are cut; None where the flow stretches
            tokens to whatever mel there is.
        reads_speaker: whether the speech LM reads the speaker's embedding, but for instructions.
        usual_instruction: for words that are spoken as usual, where every prompt of the speech LM must hold
            an instruction; empty where none is needed.
        silent_tokens: speech codes without sound, of which only the first few of a run are spoken.
        speech_lm: what it takes.
        second_mib: pages of a finished second of speech in 16 bits and in 8, with the published flow;
            0 where nothing is kept in pages.
        engines: values of ``tensorrt_llm.engine`` that can run the speech LM.
        backends: values of ``token2wav.backend`` that can run flow and vocoder; alike.
    """

    name: str
    config_file: str
    speech_tokenizer: str
    speech_codes: int
    log_mel_frames_per_token: int
    vocabulary: str
    has_qwen2: bool
    special_tokens: tuple[str, ...]
    language_tags: tuple[str, ...]
    mel: MelFormat
    prompt_frames_per_token: int | None
    reads_speaker: bool
    usual_instruction: str
    silent_tokens: frozenset[int]
    speech_lm: SpeechLmNeeds
    second_mib: tuple[float, float]
    engines: tuple[str, ...]
    backends: tuple[str, ...]

    @property
    def needs_end_of_prompt(self) -> bool:
        """Whether every prompt of the speech LM must hold ``<|endofprompt|>``."""
        return bool(self.usual_instruction)

    @property
    def reads_units(self) -> bool:
        """Whether the speech LM reads units of pronunciation."""
        return set(UNITS).issubset(self.special_tokens)

    def with_published_prompts(self) -> Family:
        """The family with prompts read at the rate at which the published code reads them, right or wrong."""
        if self.mel.sample_rate == PUBLISHED_PROMPT_RATE:
            return self
        return replace(self, mel=replace(self.mel, read_at=PUBLISHED_PROMPT_RATE))

    def instructed(self, text: str) -> str:
        """The text behind the usual instruction, where one is needed and the text has none."""
        return text if END_OF_PROMPT in text else self.usual_instruction + text


COSYVOICE2 = Family(
    name="cosyvoice2",
    config_file="cosyvoice2.yaml",
    speech_tokenizer="speech_tokenizer_v2.onnx",
    speech_codes=6561,
    log_mel_frames_per_token=4,
    vocabulary=QWEN2_VOCABULARY,
    has_qwen2=True,
    special_tokens=SPECIAL_TOKENS,
    language_tags=(),
    mel=MelFormat(),
    prompt_frames_per_token=2,
    reads_speaker=False,
    usual_instruction="",
    silent_tokens=frozenset(),
    speech_lm=QWEN2_NEEDS,
    second_mib=(110.7, 57.7),
    engines=("torch", "onnx", "tensorrt_llm", "vllm"),
    backends=("torch", "onnx", "tensorrt"),
)
COSYVOICE3 = Family(
    name="cosyvoice3",
    config_file="cosyvoice3.yaml",
    speech_tokenizer="speech_tokenizer_v3.onnx",
    speech_codes=6561,
    log_mel_frames_per_token=4,
    vocabulary=QWEN2_VOCABULARY,
    has_qwen2=True,
    special_tokens=COSYVOICE3_TOKENS,
    language_tags=(),
    mel=MelFormat(high_hz=12_000.0),
    prompt_frames_per_token=2,
    reads_speaker=False,
    usual_instruction=f"You are a helpful assistant.{END_OF_PROMPT}",
    silent_tokens=frozenset({1, 2, 28, 29, 55, 248, 494, 2241, 2242, 2322, 2323}),
    speech_lm=QWEN2_NEEDS,
    second_mib=(88.3, 46.7),
    engines=("torch", "onnx", "tensorrt_llm", "vllm"),
    backends=("torch", "onnx", "tensorrt"),
)
COSYVOICE_300M = Family(
    name="cosyvoice300m",
    config_file="cosyvoice.yaml",
    speech_tokenizer="speech_tokenizer_v1.onnx",
    speech_codes=4096,
    log_mel_frames_per_token=2,
    vocabulary="multilingual.tiktoken",
    has_qwen2=False,
    special_tokens=WHISPER_TOKENS,
    language_tags=LANGUAGE_TAGS,
    mel=MelFormat(sample_rate=22_050, hop=256, fft_size=1024),
    prompt_frames_per_token=None,
    reads_speaker=True,
    usual_instruction="",
    silent_tokens=frozenset(),
    speech_lm=TRANSFORMER_NEEDS,
    second_mib=(0.0, 0.0),
    engines=("torch",),
    backends=("torch",),
)
PUBLISHED_PROMPT_RATE = 24_000
"""At which the published code reads every family's prompts, see :class:`MelFormat`."""
FAMILIES = (COSYVOICE2, COSYVOICE3, COSYVOICE_300M)
