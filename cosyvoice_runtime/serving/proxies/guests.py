"""Models that another model's process answers: each is a proxy, which loads neither torch nor a network."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from cosyvoice_runtime.engine.host_client import NETWORKS, SPEECH, host_socket
from cosyvoice_runtime.serving.proxies.door import Door
from cosyvoice_runtime.serving.triton.load import read_parameters


class HostedProxy:
    """What the ``model.py`` of such a model calls ``TritonPythonModel``.

    Attributes:
        name: of the model.
        socket: name of that of the process which answers.
    """

    name: ClassVar[str]
    socket: ClassVar[str] = NETWORKS

    def initialize(self, arguments: dict[str, str]) -> None:
        read_parameters(arguments)
        policy = json.loads(arguments["model_config"]).get("model_transaction_policy", {})
        self._door = Door(self.name, host_socket(self.socket), streamed=policy.get("decoupled", False))

    def execute(self, requests: list[Any]) -> Any:
        return self._door.execute(requests)

    def finalize(self) -> None:
        self._door.finalize()


class OfflineModel(HostedProxy):
    """``cosyvoice2``, answering once."""

    name = "cosyvoice2_offline"
    socket = SPEECH


class TensorrtLlmModel(HostedProxy):
    """The speech LM."""

    name = "tensorrt_llm"


class AudioTokenizerModel(HostedProxy):
    """Reference to speech tokens."""

    name = "audio_tokenizer"


class SpeakerEmbeddingModel(HostedProxy):
    """Reference to the vector of its speaker."""

    name = "speaker_embedding"
