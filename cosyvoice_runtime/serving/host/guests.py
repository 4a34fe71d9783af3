"""Models that compute in a process of their own or, behind a door, in token2wav's.

A door loads neither torch nor the settings' library: what computes is imported where it is opened.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from cosyvoice_runtime.serving.host.door import Door
from cosyvoice_runtime.serving.host.host_client import host_socket
from cosyvoice_runtime.serving.triton.load import read_parameters

HOST, SHARED = "token2wav", "shared"


class GuestModel:
    """What the ``model.py`` of such a model calls ``TritonPythonModel``.

    Attributes:
        name: of the model.
    """

    name: ClassVar[str]

    def initialize(self, arguments: dict[str, str]) -> None:
        socket = host_of(arguments)
        self._model = self._opened(arguments) if socket is None else self._door(arguments, socket)

    def execute(self, requests: list[Any]) -> Any:
        return self._model.execute(requests)

    def finalize(self) -> None:
        self._model.finalize()

    def _opened(self, arguments: dict[str, str]) -> Any:
        from cosyvoice_runtime.serving.host.computing import open_alone

        return open_alone(self.name, arguments)

    def _door(self, arguments: dict[str, str], socket: Path) -> Door:
        read_parameters(arguments)
        policy = json.loads(arguments["model_config"]).get("model_transaction_policy", {})
        return Door(self.name, socket, streamed=policy.get("decoupled", False))


class TensorrtLlmModel(GuestModel):
    """The speech LM."""

    name = "tensorrt_llm"


class AudioTokenizerModel(GuestModel):
    """Reference to speech tokens."""

    name = "audio_tokenizer"


class SpeakerEmbeddingModel(GuestModel):
    """Reference to the vector of its speaker."""

    name = "speaker_embedding"


def host_of(arguments: dict[str, str]) -> Path | None:
    """Where the model computes; None in this process: ``rendered.home_of`` from the inside."""
    process = json.loads(arguments["model_config"])["parameters"]["process"]["string_value"]
    has_host = (Path(arguments["model_repository"]).parent / HOST).exists()
    return host_socket() if process == SHARED and has_host else None
