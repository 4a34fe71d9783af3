"""A client of ``token2wav`` and of the two extractors."""

from __future__ import annotations

import queue
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import tritonclient.grpc as triton

from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.flow.voice_flow import FlowPrompt
from cosyvoice_runtime.supervisor import Server
from prompts import prompt_of_tensors

TIMEOUT_S = 300.0
DATATYPES = {"i": "INT32", "f": "FP32", "b": "BOOL", "O": "BYTES"}

Arrays = Mapping[str, np.ndarray]


def inference_input(name: str, array: np.ndarray) -> Any:
    datatype = "INT64" if array.dtype == np.int64 else DATATYPES[array.dtype.kind]
    tensor = triton.InferInput(name, array.shape, datatype)
    tensor.set_data_from_numpy(array)
    return tensor


class Client:
    """Calls models that answer once; any thread may."""

    def __init__(self, server: Server) -> None:
        self._client = triton.InferenceServerClient(server.grpc_url)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def call(self, model: str, arrays: Arrays, output: str) -> np.ndarray:
        """The only row of an output; raises InferenceServerException."""
        inputs = [inference_input(name, array) for name, array in arrays.items()]
        return self._client.infer(model, inputs, client_timeout=TIMEOUT_S).as_numpy(output)[0]

    def call_together(self, model: str, rows: Sequence[Arrays], output: str) -> list[np.ndarray | Exception]:
        """Send all before reading any: with a queue delay, the server makes one batch of them."""
        answers: queue.Queue[tuple[int, Any, Any]] = queue.Queue()
        for row, arrays in enumerate(rows):
            self._client.async_infer(
                model,
                [inference_input(name, array) for name, array in arrays.items()],
                lambda result, error, row=row: answers.put((row, result, error)),
            )
        outcomes: dict[int, np.ndarray | Exception] = {}
        for _ in rows:
            row, result, error = answers.get(timeout=TIMEOUT_S)
            outcomes[row] = error or result.as_numpy(output)[0]
        return [outcomes[row] for row in range(len(rows))]

    def batch_sizes(self, model: str) -> dict[int, int]:
        """How often the model ran, by the number of requests at once."""
        statistics = self._client.get_inference_statistics(model).model_stats[0]
        return {batch.batch_size: batch.compute_infer.count for batch in statistics.batch_stats}


def chunk_inputs(
    utterance: str,
    tokens: Sequence[int],
    position: int,
    last: bool,
    voice: str = "voice",
    seed: int = 7,
    speed: float = 1.0,
) -> dict[str, np.ndarray]:
    """What every call of token2wav has."""
    return {
        "utterance_id": np.array([[utterance.encode()]], np.object_),
        "speech_tokens": np.array([tokens], np.int32),
        "position": np.array([[position]], np.int32),
        "last": np.array([[last]]),
        "voice_key": np.array([[voice.encode()]], np.object_),
        "noise_seed": np.array([[seed]], np.int64),
        "speed": np.array([[speed]], np.float32),
    }


def prompt_inputs(prompt: FlowPrompt) -> dict[str, np.ndarray]:
    """A voice, for a server that does not know it."""
    return {
        "prompt_speech_tokens": prompt.tokens.astype(np.int32)[None],
        "prompt_speech_feat": prompt.mel[None],
        "prompt_spk_embedding": prompt.speaker[None],
    }


def speak(
    client: Client, utterance: str, tokens: Sequence[int], ends: Sequence[int], **options
) -> np.ndarray:
    """An utterance of a known voice in chunks that end at ``ends`` and at the last token."""
    waves, start = [], 0
    for end in [*ends, None]:
        arrays = chunk_inputs(utterance, tokens[start:end], start, end is None, **options)
        waves.append(client.call("token2wav", arrays, "waveform"))
        start = end
    return np.concatenate(waves)


def random_prompt(config: FlowConfig, length: int, seed: int) -> FlowPrompt:
    generator = torch.Generator().manual_seed(seed)
    return prompt_of_tensors(
        tokens=torch.randint(config.token_vocab_size, (length,), generator=generator),
        mel=-6 + 2 * torch.randn(config.frames_per_token * length, config.mel_bins, generator=generator),
        speaker=torch.randn(config.speaker_dim, generator=generator),
    )


def random_tokens(count: int, seed: int) -> list[int]:
    return torch.randint(6561, (count,), generator=torch.Generator().manual_seed(seed)).tolist()
