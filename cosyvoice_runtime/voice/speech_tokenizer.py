"""16 kHz audio to speech tokens, through the checkpoint's ``speech_tokenizer_v*.onnx``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cosyvoice_runtime.arrays import Array, Floats, Ids
from cosyvoice_runtime.audio.audio import EXTRACTOR_SAMPLE_RATE
from cosyvoice_runtime.audio.mel import LOG_MEL_BINS, log_mel_spectrogram
from cosyvoice_runtime.audio.reference import MAX_SECONDS
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.errors import SPEECH_TOKENIZER, CheckpointError, InvalidInput, NotFiniteError
from cosyvoice_runtime.voice.onnx_model import BATCH, ExtractorModel, OnnxModel, Port

NUM_CODES = 3**8  # finite scalar quantisation of 8 values to 3 levels: ids 0..6560
LOG_MEL_FRAMES_PER_TOKEN = 4
"""Log-mel frames (100 Hz) per speech token (25 Hz) of CosyVoice2's tokenizer; no configuration has it."""
INPUTS = (
    Port(("tensor(float)",), (BATCH, LOG_MEL_BINS, "frames")),
    Port(("tensor(int32)",), (BATCH,)),
)
OUTPUT = Port(("tensor(int32)", "tensor(int64)"), None)


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
        self._model = engine or OnnxModel(onnx_path, INPUTS, OUTPUT, threads)
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
        """Tokens of several waveforms, each as alone.

        Raises:
            InvalidInput: a waveform is longer than 30 s.
        """
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
        raise InvalidInput("reference_wav", f"{seconds:.2f} s", f"expected at most {MAX_SECONDS:g} s")
