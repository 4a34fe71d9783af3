"""Sizes of the speech LMs that read the published weights."""

from __future__ import annotations

from dataclasses import dataclass

WHOLE_TEXTS = (0, 0)
"""``mix_ratio`` of a speech LM that was not trained on text between speech."""
LAYER_NORM_EPS = 1e-12
"""Epsilon of the norms of :class:`TransformerLMConfig`, fixed in the published code."""
TOKEN_RATE = 50
"""Speech tokens per second of :class:`TransformerLMConfig`."""
CONTROL_ROWS = 200
"""Rows of :class:`OneTableSpeechLMConfig` after the codes. The first four are sos, eos, the task id and the
fill marker; the others are unused, and end the speech as well."""


@dataclass(frozen=True)
class SpeechLMConfig:
    """Qwen2 decoder that reads text and speech tokens and writes speech tokens."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    text_vocab_size: int
    speech_tokens: int
    rope_theta: float
    rms_norm_eps: float
    max_positions: int
    mix_ratio: tuple[int, int]
    """(text, speech) tokens per block when text streams in, or WHOLE_TEXTS."""

    @property
    def interleaves_text(self) -> bool:
        """Whether text may come between speech tokens."""
        return self.mix_ratio != WHOLE_TEXTS

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads

    @property
    def speech_rows(self) -> int:
        """Rows of the speech embedding and of the output head: the codes and three control ids."""
        return self.speech_tokens + 3

    @property
    def eos_id(self) -> int:
        return self.speech_tokens

    @property
    def fill_id(self) -> int:
        """Control id by which the model asks for more text when text streams in."""
        return self.speech_tokens + 2

    @property
    def stop_ids(self) -> range:
        """All rows after the codes; any of them ends the speech."""
        return range(self.speech_tokens, self.speech_rows)

    @property
    def control_rows(self) -> tuple[int, int] | None:
        """Speech rows of sos and of the task id; None where they have a table of their own."""
        return None

    @property
    def token_rate(self) -> int:
        """Speech tokens per second."""
        return 25

    @property
    def speaker_values(self) -> int:
        """Values of the speaker embedding that it reads; 0 where it reads none."""
        return 0

    @property
    def rotary(self) -> bool:
        """Whether positions turn queries and keys."""
        return True

    @property
    def head_bias(self) -> bool:
        """Whether the output head has a bias."""
        return True


@dataclass(frozen=True)
class OneTableSpeechLMConfig(SpeechLMConfig):
    """All speech and control ids are rows of one table; the head has as many rows, and no bias."""

    @property
    def speech_rows(self) -> int:
        return self.speech_tokens + CONTROL_ROWS

    @property
    def eos_id(self) -> int:
        return self.speech_tokens + 1

    @property
    def fill_id(self) -> int:
        return self.speech_tokens + 3

    @property
    def control_rows(self) -> tuple[int, int]:
        return self.speech_tokens, self.speech_tokens + 2

    @property
    def head_bias(self) -> bool:
        return False


@dataclass(frozen=True)
class RelativeEncoderConfig:
    """Layers of attention with relative positions."""

    width_in: int
    width: int
    num_heads: int
    feed_forward_width: int
    num_layers: int

    @property
    def head_dim(self) -> int:
        return self.width // self.num_heads


@dataclass(frozen=True)
class TransformerLMConfig(SpeechLMConfig):
    """Decoder with relative positions, which reads encoded text and who speaks.

    ``rope_theta`` is the base of the positions' sinusoids, ``rms_norm_eps`` that of the layers' norms.
    """

    input_width: int
    text_width: int
    speaker_dim: int
    text_encoder: RelativeEncoderConfig

    @property
    def decoder(self) -> RelativeEncoderConfig:
        """The decoder's layers, described as an encoder's."""
        return RelativeEncoderConfig(
            self.input_width, self.hidden_size, self.num_heads, self.intermediate_size, self.num_layers
        )

    @property
    def token_rate(self) -> int:
        return TOKEN_RATE

    @property
    def rotary(self) -> bool:
        return False

    @property
    def speaker_values(self) -> int:
        return self.speaker_dim

    @property
    def speech_rows(self) -> int:
        """Rows of the output head: the codes and the end of speech, which the embedding has no row for."""
        return self.speech_tokens + 1
