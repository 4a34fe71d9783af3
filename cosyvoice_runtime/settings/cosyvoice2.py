"""Section of the entry models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from cosyvoice_runtime.settings.model import ModelSettings, require_order
from cosyvoice_runtime.settings.section import AUTO, AUTO_NUMBER, OR_AUTO, Accepted, Flag

if TYPE_CHECKING:
    from typing import Self

    from cosyvoice_runtime.settings.machine import Machine


CPU_FIRST_HOP = 18
"""Speech tokens; CosyVoice2's vocoder holds 10.5 of them back, CosyVoice3's 2.5."""
NO_CLASS = "none"
ClassName = Annotated[str, Field(pattern=r"^(none|[\w.]+:\w+)$"), Accepted("MODULE:CLASS or none")]


PARAGRAPH_PAUSE_S = 0.5
"""Silence between two paragraphs, beside the silence of a sentence's end.

Amazon Polly, too, makes the pause of ``<p>`` longer than that of a sentence; half a second is the ``medium``
break of SSML here.
"""
NO_BUCKET = "none"
BucketUrl = Annotated[
    str, Field(pattern=r"^(none|s3://[^/\s?#]+(/[^\s?#]*)?)$"), Accepted("s3://BUCKET/PREFIX or none")
]


class CosyVoice2Settings(ModelSettings):
    """``cosyvoice2`` and ``cosyvoice2_offline``: text, voices, and the schedule of an utterance's chunks."""

    name: ClassVar[str] = "cosyvoice2"

    decoupled: Flag = Field(
        True,
        description="Stream from cosyvoice2; false: it answers once, as cosyvoice2_offline does. Behind the "
        "gateways unary calls are answered once in any case.",
    )
    voices_dir: Path = Field(
        Path("voices"), description="Directory of the registered voices; made when missing."
    )
    voices_url: BucketUrl = Field(
        NO_BUCKET,
        description="[Bucket](deployment.md#voices-of-many-servers) in which servers and fronts keep the "
        "registered voices together, in place of the directory.",
    )
    voices_grace_s: float = Field(
        60.0,
        ge=0.0,
        le=86_400.0,
        description="How long a registered voice is spoken with while the bucket is away, from when the "
        "bucket last had it.",
    )
    default_voice: Annotated[str, Field(pattern=r"^\S+$"), Accepted("a name without spaces")] = Field(
        "default", description="Voice of a request that brings no reference and names none."
    )
    watermark: ClassName = Field(
        "none",
        description="What marks the sound of all speech, see cosyvoice_runtime/serving/speech/watermark.py.",
    )
    trim_silence: Literal["off", "start", "both"] = Field(
        "off",
        description="[Silence](text.md#silence-at-the-ends) that answers are sent without: none, that before "
        "the speech, or also that behind it, unless a request says so.",
    )
    paragraph_pause_s: float = Field(
        PARAGRAPH_PAUSE_S,
        ge=0.0,
        le=10.0,
        description="[Silence between two paragraphs](text.md#paragraphs), beside what their segments have "
        "of their own, unless a request says so.",
    )
    verify: Literal["off", "report", "retry"] = Field(
        "report",
        description="Whether [all words were spoken, once](library.md#were-all-words-spoken-once), of "
        "answers as a whole, where that is seen, unless a request says so.",
    )
    verifier: ClassName = Field(
        NO_CLASS,
        description="What judges the sound of whole answers that are verified, too, see "
        "cosyvoice_runtime/engine/utterance/verifier.py.",
    )
    max_voices: int = Field(
        1000,
        ge=1,
        le=1_000_000,
        description="Voices kept on disk; the one unused for longest makes room.",
    )
    reference_days: float = Field(
        30.0,
        ge=0.0,
        le=36_500.0,
        description="Days that voices of requests' references stay on disk after their last use; 0 keeps "
        "them in memory alone.",
    )
    max_text_characters: int = Field(
        5000,
        ge=1,
        le=100_000,
        description="Longest text of one request; of more than 10,000 characters the answer is a stream.",
    )
    lexicon: Annotated[str, Field(min_length=1), Accepted("a file, or none")] = Field(
        "none",
        description="File of [words that are spoken as something else](text.md#words-that-are-misread).",
    )
    polyphones: Flag = Field(
        False,
        description="Tell CosyVoice3 in [units of pronunciation](text.md#words-that-are-misread) how "
        "Chinese characters of several readings are read.",
    )
    text_markup: Literal["auto", "plain", "markdown", "ssml"] = Field(
        "auto",
        description="What texts are [written in](text.md#markup), unless a request says so: auto is SSML for "
        "one that begins with <speak>, else Markdown.",
    )
    emoji: Literal["silent", "named"] = Field(
        "silent", description="What is spoken of [emoji](text.md#markup): nothing, or their names."
    )
    code_blocks: Literal["skipped", "announced"] = Field(
        "skipped",
        description="What is spoken of a [block of code](text.md#markup): nothing, or what it is.",
    )
    add_instruction: Flag = Field(
        False,
        description="Put CosyVoice3's usual instruction before words without one; false refuses them. In "
        "text that comes in pieces, the first piece holds an instruction.",
    )
    max_inflight_utterances: Annotated[int, Field(ge=1, le=4096), OR_AUTO] = Field(
        AUTO_NUMBER,
        description="Utterances spoken at once, by both entry models together; one more is refused with "
        "UNAVAILABLE. auto: as many as the machine keeps up with, measured while it runs.",
    )
    silence_timeout_s: float = Field(
        30.0, ge=2.0, le=3600.0, description="Longest silence of a network before the utterance fails."
    )
    text_feeding: Literal["auto", "interleaved", "clauses"] = Field(
        AUTO,
        description="How text that comes in pieces is spoken. interleaved: the speech LM gets clauses while "
        "it speaks (engines torch and onnx); clauses: each clause is a segment; auto: by the engine and the "
        "checkpoint's mix_ratio "
        "([why](decisions.md#text-that-arrives-between-speech-or-clause-by-clause)).",
    )
    text_timeout_s: float = Field(
        30.0,
        ge=0.1,
        le=3600.0,
        description="Longest time without new text and speech before an utterance whose text comes in "
        "pieces ends.",
    )
    first_hop_tokens: Annotated[int, Field(ge=1, le=100), OR_AUTO] = Field(
        AUTO_NUMBER,
        description="Fewest speech tokens of the first chunk, of which CosyVoice2's vocoder holds 0.42 s "
        "back and CosyVoice3's 0.1 s; auto is 16 and 12 with token2wav on a GPU, 18 on a CPU. Not of "
        "CosyVoice-300M's.",
    )
    hop_tokens: int = Field(
        25, ge=1, le=1000, description="Speech tokens of a chunk (25 a second); not of CosyVoice-300M's."
    )
    max_hop_tokens: int = Field(
        100, ge=1, le=1000, description="Speech tokens of the longest chunk that the hop may grow to."
    )
    max_tokens: int = Field(
        2048,
        ge=1,
        le=100_000,
        description="Most speech tokens of a segment, within tensorrt_llm.max_tokens.",
    )
    sampling: Literal["ras", "nucleus"] = Field(
        "ras", description="How a speech token is drawn: repetition-aware, or plain top-k and top-p."
    )
    top_k: int = Field(25, ge=1, le=6561, description="Most probable tokens that take part in the draw.")
    top_p: float = Field(0.8, ge=0.01, le=1.0, description="Probability mass that takes part in the draw.")
    temperature: float = Field(1.0, ge=0.01, le=10.0, description="Divisor of the logits.")
    repetition_penalty: float = Field(
        1.0,
        ge=0.1,
        le=10.0,
        description="Divisor of the positive logits of tokens already spoken; 1 leaves them alone.",
    )

    @model_validator(mode="after")
    def _hop_within_its_maximum(self) -> Self:
        require_order(self, "hop_tokens", "max_hop_tokens")
        return self

    @property
    def max_voice_bytes(self) -> int:
        """Size of the voices kept on disk; one of 30 s has half a MiB."""
        return self.max_voices << 21

    @property
    def bucket_url(self) -> str | None:
        """``voices_url``, or None for a directory of voices."""
        return None if self.voices_url == NO_BUCKET else self.voices_url

    @property
    def first_hop(self) -> int:
        """``first_hop_tokens`` as it is given, or for a CPU."""
        return self.first_hop_tokens or CPU_FIRST_HOP

    def resolved(self, machine: Machine) -> Self:
        lexicon = self.lexicon if self.lexicon == "none" else str(Path(self.lexicon).absolute())
        return super().resolved(machine).replace(voices_dir=self.voices_dir.absolute(), lexicon=lexicon)
