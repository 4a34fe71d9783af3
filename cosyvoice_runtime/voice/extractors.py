"""Networks that turn reference audio into a voice."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from cosyvoice_runtime.arrays import Array, Floats, Ids
from cosyvoice_runtime.audio.audio import EXTRACTOR_SAMPLE_RATE, MAX_SECONDS, Audio
from cosyvoice_runtime.audio.mel import FBANK_BINS, LOG_MEL_BINS, centred_fbank, log_mel_spectrogram
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.errors import SPEECH_TOKENIZER, CheckpointError, InvalidInput, NotFiniteError
from cosyvoice_runtime.text.validate import MAX_PROMPT_CHARACTERS, require_text
from cosyvoice_runtime.voice import Voice, build_voice
from cosyvoice_runtime.voice.digest import file_hash
from cosyvoice_runtime.voice.onnx_model import BATCH, ExtractorModel, OnnxModel, Port

NUM_CODES = 3**8  # finite scalar quantisation of 8 values to 3 levels: ids 0..6560
LOG_MEL_FRAMES_PER_TOKEN = 4
"""Log-mel frames (100 Hz) per speech token (25 Hz) of CosyVoice2's tokenizer; no configuration has it."""
TOKENIZER_INPUTS = (
    Port(("tensor(float)",), (BATCH, LOG_MEL_BINS, "frames")),
    Port(("tensor(int32)",), (BATCH,)),
)
TOKENIZER_OUTPUT = Port(("tensor(int32)", "tensor(int64)"), None)


class SpeechTokenizer:
    """Speech tokens of 16 kHz audio.

    Args:
        onnx_path: graph with the inputs log-mel float32 [B, 128, T] and length int32 [B], in this order.
        num_codes: ids that the speech LM and the flow know.
        threads: cores for one call.
        engine: built from the graph, to run in its place.
        frames_per_token: of the log-mel (100 Hz).

    Raises:
        CheckpointError: the graph is unreadable or has another interface; at a call: it delivers ids or
            a token rate that the checkpoint can't have.
        NotFiniteError: at a call: its ids are made of NaN or infinity.
    """

    def __init__(
        self,
        onnx_path: str | Path,
        num_codes: int = NUM_CODES,
        threads: int = 1,
        engine: ExtractorModel | None = None,
        frames_per_token: int = LOG_MEL_FRAMES_PER_TOKEN,
    ) -> None:
        self._path = onnx_path
        self._model = engine or OnnxModel(onnx_path, TOKENIZER_INPUTS, TOKENIZER_OUTPUT, threads)
        self._num_codes = num_codes
        self._frames_per_token = frames_per_token

    @classmethod
    def of(cls, layout: Layout, threads: int = 1, engine: ExtractorModel | None = None) -> SpeechTokenizer:
        """That of a checkpoint."""
        family = layout.family
        return cls(
            layout.speech_tokenizer, family.speech_codes, threads, engine, family.log_mel_frames_per_token
        )

    def __call__(self, samples: Floats) -> Ids:
        """Tokens of one waveform: [n] float32 at 16 kHz, at most 30 s -> int32."""
        return self.batch([samples])[0]

    def batch(self, waveforms: Sequence[Floats]) -> list[Ids]:
        """Tokens of several waveforms, each as alone; an InvalidInput for one longer than 30 s."""
        for samples in waveforms:
            _check_length(samples)
        return self._model.map_rows([log_mel_spectrogram(samples) for samples in waveforms], self._tokens)

    def _tokens(self, features: Floats) -> Ids:
        rows, _, frames = features.shape
        ids = self._model.run(features, np.full(rows, frames, dtype=np.int32))
        tokens = ids.reshape(rows, -1)
        self._check_tokens(tokens, frames)
        return tokens.astype(np.int32)

    def _check_tokens(self, tokens: Array, frames: int) -> None:
        count = tokens.shape[1]
        if abs(count - frames / self._frames_per_token) >= 1:
            expected = f"expected one per {self._frames_per_token}"
            raise CheckpointError(f"{self._path}: {count} tokens for {frames} frames, {expected}")
        if (tokens == np.iinfo(tokens.dtype).min).any():  # what NaN and infinity become as whole numbers
            raise NotFiniteError(SPEECH_TOKENIZER)
        strangers = tokens[(tokens < 0) | (tokens >= self._num_codes)]
        if strangers.size:
            raise CheckpointError(
                f"{self._path}: token id {int(strangers[0])}, expected 0 to {self._num_codes - 1}"
            )


def _check_length(samples: Floats) -> None:
    seconds = samples.shape[0] / EXTRACTOR_SAMPLE_RATE
    if seconds > MAX_SECONDS:
        limit = f"expected at most {MAX_SECONDS:g} s"
        raise InvalidInput("reference_wav", f"a recording of {seconds:.2f} s", limit)


ENCODER_INPUT = Port(("tensor(float)",), (BATCH, "frames", FBANK_BINS))
ENCODER_OUTPUT = Port(("tensor(float)",), None)
PROBE_FRAMES = 100


class SpeakerEncoder:
    """Speaker embedding of 16 kHz audio, not normalised.

    Args:
        onnx_path: graph with the input float32 [B, T, 80] and the output float32 [B, D].
        threads: cores for one call.
        engine: built from the graph, to run in its place.

    Attributes:
        dimension: D, found by running the graph once (192 as published).

    Raises:
        CheckpointError: the graph is unreadable or has another interface.
    """

    def __init__(self, onnx_path: str | Path, threads: int = 1, engine: ExtractorModel | None = None) -> None:
        self._path = onnx_path
        self._model = engine or OnnxModel(onnx_path, [ENCODER_INPUT], ENCODER_OUTPUT, threads)
        self.dimension = self._embed(np.zeros((1, PROBE_FRAMES, FBANK_BINS), np.float32)).shape[1]

    def __call__(self, samples: Floats) -> Floats:
        """Embedding of one waveform: [n] float32 at 16 kHz, at least 400 -> [D] float32."""
        return self.batch([samples])[0]

    def batch(self, waveforms: Sequence[Floats]) -> list[Floats]:
        """Embeddings of several waveforms, each as alone."""
        return self._model.map_rows([centred_fbank(samples) for samples in waveforms], self._embed)

    def _embed(self, features: Floats) -> Floats:
        embeddings = self._model.run(features)
        if embeddings.ndim != 2:
            raise CheckpointError(f"{self._path}: output of shape {embeddings.shape}, expected [B, D]")
        return embeddings


def checkpoint_id(layout: Layout) -> str:
    """Hash of the two extractors: voices made by others don't fit the checkpoint."""
    return file_hash(layout.speech_tokenizer, layout.speaker_encoder)


class Extractors:
    """Speech tokenizer and speaker encoder of a checkpoint, on ``threads`` CPU threads each.

    Args:
        published_prompt_rate: read recordings at the rate at which the published code does, right or wrong.

    Raises:
        InvalidInput: fewer than one thread.
    """

    def __init__(self, layout: Layout, threads: int = 1, published_prompt_rate: bool = False) -> None:
        if threads < 1:
            raise InvalidInput("threads", threads, "at least 1")
        self.speech_tokenizer = SpeechTokenizer.of(layout, threads)
        self.speaker_encoder = SpeakerEncoder(layout.speaker_encoder, threads)
        self.checkpoint_id = checkpoint_id(layout)
        self._family = layout.family.with_published_prompts() if published_prompt_rate else layout.family

    def voice(self, audio: Audio, transcript: str) -> Voice:
        """The voice of reference audio and what it says, which may be empty.

        Raises:
            InvalidInput: the audio is no usable reference, or nobody could say the transcript in it.
        """
        if transcript.strip():
            require_text("reference_text", transcript, MAX_PROMPT_CHARACTERS)
        return build_voice(
            audio,
            transcript,
            self.speech_tokenizer,
            self.speaker_encoder,
            self.checkpoint_id,
            self._family,
        )


logger = logging.getLogger(__name__)

BatchExtractor = Callable[[Sequence[Floats]], list[Array]]
Outcome = Array | Exception


def extract_rows(
    extract: BatchExtractor, references: Sequence[Audio | Exception], stage: str
) -> list[Outcome]:
    """Result of ``extract`` for each reference, or its error; an exception stays what it is.

    All references go in one batch. If that fails, each goes alone, so that only the culprit fails.

    Args:
        stage: the network's name in the error of a reference for which it gives NaN or infinity.
    """
    good = [reference.samples for reference in references if isinstance(reference, Audio)]
    results = iter(_together(extract, good, stage) if good else [])
    return [next(results) if isinstance(reference, Audio) else reference for reference in references]


def _together(extract: BatchExtractor, waveforms: Sequence[Floats], stage: str) -> list[Outcome]:
    try:
        return [_checked(result, stage) for result in extract(waveforms)]
    except Exception as error:
        if len(waveforms) == 1:
            return [error]
        logger.warning("a batch of %d failed, each runs alone", len(waveforms), exc_info=error)
        return [_together(extract, [waveform], stage)[0] for waveform in waveforms]


def _checked(result: Array, stage: str) -> Outcome:
    return result if np.isfinite(result).all() else NotFiniteError(stage)
