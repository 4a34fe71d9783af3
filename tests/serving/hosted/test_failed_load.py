"""A load that fails halfway closes what it has opened; otherwise threads would keep the process alive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.serving.hosted import host_model, tensorrt_llm
from cosyvoice_runtime.settings import AudioTokenizerSettings, TensorrtLlmSettings, Token2WavSettings

PARTS = ("tensorrt_llm", "audio_tokenizer", "token2wav", "host")


class Part:
    """A model or the host, which notes its beginning and its end.

    Attributes:
        log: of all parts.
        broken: those that can't be opened.
    """

    log: list[str]
    broken: set[str]

    def __init__(self, name: str) -> None:
        if name in self.broken:
            raise CheckpointError(f"{name} can't be opened")
        self.name = name
        self.log.append(f"{name} opens")

    def execute(self, requests: list[Any]) -> list[Any]:
        return []

    def prepare(self) -> None:
        self.log.append(f"{self.name} prepares")

    def finalize(self) -> None:
        self.log.append(f"{self.name} ends")

    close = finalize


@pytest.fixture
def load(monkeypatch, tmp_path: Path) -> Callable[..., host_model.Token2WavModel]:
    """``load(*broken)`` loads token2wav with a speech LM and an audio tokenizer beside it."""
    sections = {
        "tensorrt_llm": TensorrtLlmSettings(device="cpu", engine="onnx", dtype="float32"),
        "audio_tokenizer": AudioTokenizerSettings(max_batch=2),
    }
    for name, settings in sections.items():
        section = host_model.SECTIONS[name]
        monkeypatch.setattr(section, "from_parameters", lambda _, settings=settings: settings)
    monkeypatch.setattr(tensorrt_llm, "SpeechLmModel", lambda *_: Part("tensorrt_llm"))
    monkeypatch.setattr(host_model, "AudioTokenizer", lambda *_: Part("audio_tokenizer"))
    monkeypatch.setattr(host_model, "read_parameters", lambda _: {})
    monkeypatch.setattr(host_model, "hosted_models", lambda _: list(sections))
    monkeypatch.setattr(host_model, "read_settings", lambda *_: Token2WavSettings(backend="onnx"))
    monkeypatch.setattr(host_model, "keep_loaded", lambda: None)
    monkeypatch.setattr(host_model, "host_socket", lambda: tmp_path / "networks")
    monkeypatch.setattr(host_model, "WaveModel", lambda *_: Part("token2wav"))
    monkeypatch.setattr(host_model, "ModelHost", lambda *_: Part("host"))
    monkeypatch.setattr(host_model, "hosted_models", lambda _: list(sections))

    def load(*broken: str) -> host_model.Token2WavModel:
        monkeypatch.setattr(Part, "log", [], raising=False)
        monkeypatch.setattr(Part, "broken", set(broken), raising=False)
        model = host_model.Token2WavModel()
        model.initialize({"model_repository": str(tmp_path / "token2wav")})
        return model

    return load


@pytest.mark.parametrize("broken", PARTS)
def test_what_was_opened_before_ends(load, broken):
    with pytest.raises(CheckpointError, match=f"{broken} can't be opened"):
        load(broken)
    before = PARTS[: PARTS.index(broken)]
    assert Part.log[: len(before)] == [f"{name} opens" for name in before]
    assert Part.log[len(before) :] == [f"{name} ends" for name in reversed(before)]


def test_token2wav_ends_first_and_the_host_when_all_have_answered(load):
    model = load()
    assert Part.log == [*(f"{name} opens" for name in PARTS), "token2wav prepares"]
    Part.log.clear()
    model.finalize()
    assert Part.log == [f"{name} ends" for name in ("token2wav", "audio_tokenizer", "tensorrt_llm", "host")]
