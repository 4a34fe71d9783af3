"""The proxy models, which load neither torch nor a network."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from cosyvoice_runtime.engine.host_client import NETWORKS, SPEECH, host_socket
from cosyvoice_runtime.serving.proxies.proxy_model import ProxyModel
from cosyvoice_runtime.serving.triton.load import read_parameters


class HostedProxy:
    """The ``TritonPythonModel`` of a proxy model.

    Attributes:
        name: name of the model.
        socket: name of the socket of the process that answers.
    """

    name: ClassVar[str]
    socket: ClassVar[str] = NETWORKS

    def initialize(self, arguments: dict[str, str]) -> None:
        read_parameters(arguments)
        policy = json.loads(arguments["model_config"]).get("model_transaction_policy", {})
        self._proxy = ProxyModel(self.name, host_socket(self.socket), streamed=policy.get("decoupled", False))

    def execute(self, requests: list[Any]) -> Any:
        return self._proxy.execute(requests)

    def finalize(self) -> None:
        self._proxy.finalize()


class OfflineModel(HostedProxy):
    """The proxy of ``cosyvoice2`` for clients that want one answer."""

    name = "cosyvoice2_offline"
    socket = SPEECH


class TensorrtLlmModel(HostedProxy):
    """The proxy of the speech LM."""

    name = "tensorrt_llm"


class AudioTokenizerModel(HostedProxy):
    """The proxy of the speech tokenizer."""

    name = "audio_tokenizer"


class SpeakerEmbeddingModel(HostedProxy):
    """The proxy of the speaker encoder."""

    name = "speaker_embedding"
