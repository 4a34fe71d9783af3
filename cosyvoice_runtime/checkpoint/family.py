"""The families of checkpoints: how a directory of each is told, and what its networks' sizes do not say.

The sizes are a :class:`~cosyvoice_runtime.checkpoint.config.ModelConfig`, whose parts have classes of the
family's own; the class of a part's configuration picks its network.
"""

from __future__ import annotations

from dataclasses import dataclass

from cosyvoice_runtime.checkpoint.pronunciation import UNITS
from cosyvoice_runtime.checkpoint.special_tokens import COSYVOICE3_TOKENS, END_OF_PROMPT, SPECIAL_TOKENS


@dataclass(frozen=True)
class Family:
    """What the checkpoints of a family have in common.

    Attributes:
        name: for the command line and messages.
        config_file: by which a directory is told to be of the family.
        speech_tokenizer: file of the ONNX speech tokenizer.
        special_tokens: of the text tokenizer, in the order of their ids.
        mel_high_hz: upper edge of the filters of the prompt's mel.
        usual_instruction: for words that are spoken as usual, where every prompt of the speech LM must hold
            an instruction; empty where none is needed.
        silent_tokens: speech codes without sound, of which only the first few of a run are spoken.
        engines: values of ``tensorrt_llm.engine`` that can run the speech LM.
        backends: values of ``token2wav.backend`` that can run flow and vocoder.
    """

    name: str
    config_file: str
    speech_tokenizer: str
    special_tokens: tuple[str, ...]
    mel_high_hz: float
    usual_instruction: str
    silent_tokens: frozenset[int]
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

    def instructed(self, text: str) -> str:
        """The text behind the usual instruction, where one is needed and the text has none."""
        return text if END_OF_PROMPT in text else self.usual_instruction + text


COSYVOICE2 = Family(
    name="cosyvoice2",
    config_file="cosyvoice2.yaml",
    speech_tokenizer="speech_tokenizer_v2.onnx",
    special_tokens=SPECIAL_TOKENS,
    mel_high_hz=8000.0,
    usual_instruction="",
    silent_tokens=frozenset(),
    engines=("torch", "onnx", "tensorrt_llm", "vllm"),
    backends=("torch", "onnx", "tensorrt"),
)
COSYVOICE3 = Family(
    name="cosyvoice3",
    config_file="cosyvoice3.yaml",
    speech_tokenizer="speech_tokenizer_v3.onnx",
    special_tokens=COSYVOICE3_TOKENS,
    mel_high_hz=12_000.0,
    usual_instruction=f"You are a helpful assistant.{END_OF_PROMPT}",
    silent_tokens=frozenset({1, 2, 28, 29, 55, 248, 494, 2241, 2242, 2322, 2323}),
    engines=("torch", "onnx"),
    backends=("torch",),
)
FAMILIES = (COSYVOICE2, COSYVOICE3)
