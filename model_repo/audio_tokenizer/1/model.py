"""Reference to speech tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cosyvoice_runtime.audio.rates import EXTRACTOR_SAMPLE_RATE
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.compiled.export.extractors import TOKENIZER_NAME
from cosyvoice_runtime.compiled.extractor import open_extractor
from cosyvoice_runtime.metrics.request_count import RequestCount
from cosyvoice_runtime.serving.triton.load import read_settings
from cosyvoice_runtime.serving.triton.references import references
from cosyvoice_runtime.serving.triton.request import respond
from cosyvoice_runtime.serving.triton.schema import Tensors
from cosyvoice_runtime.settings import AudioTokenizerSettings
from cosyvoice_runtime.voice.extract import Outcome, extract_rows
from cosyvoice_runtime.voice.speech_tokenizer import SpeechTokenizer

WARM_UP_SAMPLES = EXTRACTOR_SAMPLE_RATE


class TritonPythonModel:
    """One reference in, speech tokens out; see config.pbtxt."""

    def initialize(self, args: dict[str, str]) -> None:
        settings = read_settings(args, AudioTokenizerSettings)
        self._name = args["model_name"]
        self._count = RequestCount(self._name)
        layout = Layout(settings.checkpoint_dir)
        engine = open_extractor(settings, TOKENIZER_NAME)
        self._extractor = SpeechTokenizer(layout.speech_tokenizer, threads=settings.threads, engine=engine)
        self._extractor(torch.zeros(WARM_UP_SAMPLES))

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        with self._count.during(len(requests)):
            outcomes = extract_rows(self._extractor.batch, references(requests))
            return [respond(self._name, encode(outcome)) for outcome in outcomes]


def encode(outcome: Outcome) -> Tensors | Exception:
    return outcome if isinstance(outcome, Exception) else {"prompt_speech_tokens": outcome.numpy()[None]}
