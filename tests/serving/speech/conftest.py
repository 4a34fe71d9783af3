"""A tokenizer of text, and services that take text in pieces over coded stages."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from coded_listener import VOICE

from coded_stages import CodedStages
from cosyvoice_runtime.checkpoint import load_config
from cosyvoice_runtime.engine.utterance.hop import HopPolicy
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.serving.speech.admission import Admission
from cosyvoice_runtime.serving.speech.service import SpeechService
from cosyvoice_runtime.serving.speech.speech_metrics import SpeechMetrics
from cosyvoice_runtime.serving.speech.voice_book import VoiceBook
from cosyvoice_runtime.text import TextFrontEnd, TextTokenizer
from cosyvoice_runtime.voice import VoiceStore


@pytest.fixture(scope="module")
def tokenizer(tiny_checkpoint) -> TextTokenizer:
    return TextTokenizer(tiny_checkpoint / "CosyVoice-BlankEN")


@pytest.fixture(scope="module")
def metrics_dir(tmp_path_factory) -> Path:
    """One for all: its files stay open to the process's end."""
    return tmp_path_factory.mktemp("metrics")


@pytest.fixture
def open_service(tokenizer, tiny_checkpoint, tmp_path: Path, metrics_dir: Path):
    def service(**options) -> tuple[CodedStages, SpeechService, Admission]:
        stages = CodedStages([])
        stages.per_text = 15
        metrics = SpeechMetrics(Metrics("cosyvoice2", metrics_dir))
        store = VoiceStore(tmp_path / "voices", "checkpoint")
        admission = Admission(2, now=itertools.count(100).__next__)
        options = {"blocks": load_config(tiny_checkpoint).speech_lm, "max_characters": 300} | options
        return (
            stages,
            SpeechService(
                stages,
                VoiceBook(store, {"one": VOICE}, "one", stages, "checkpoint"),
                TextFrontEnd(tokenizer),
                tokenizer,
                HopPolicy(25, 3, 10, 25, 100, 25),
                24_000,
                metrics,
                admission,
                sampling=SamplingOptions(),
                speech_tokens=100,
                **options,
            ),
            admission,
        )

    return service
