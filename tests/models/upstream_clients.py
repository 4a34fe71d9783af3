"""What the clients of FunAudioLLM's Triton repository send: their tensors, shapes and calls, none more.

Of https://github.com/FunAudioLLM/CosyVoice, ``runtime/triton_trtllm``, commit ace7c47.
"""

from __future__ import annotations

import asyncio
import json
import queue
import urllib.request
from types import ModuleType
from typing import Any

import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import np_to_triton_dtype

MODEL = "cosyvoice2"
RATE = 16_000
TIMEOUT_S = 180.0

Array = np.ndarray[Any, Any]


def arrays(
    samples: Array, reference_text: str, target_text: str, padding_s: int | None = None
) -> dict[str, Array]:
    """``prepare_request_input_output``: zeros fill the reference up to the length that is expected of the
    reference and the speech together, rounded up to ``padding_s``."""
    lengths = np.array([[len(samples)]], np.int32)
    if padding_s:
        seconds = len(samples) / RATE
        expected = seconds / len(reference_text) * len(target_text) + seconds
        padded = np.zeros(padding_s * RATE * (int(expected) // padding_s + 1), np.float32)
        padded[: len(samples)] = samples
        samples = padded
    return {
        "reference_wav": samples.reshape(1, -1).astype(np.float32),
        "reference_wav_len": lengths,
        "reference_text": np.array([[reference_text]], np.object_),
        "target_text": np.array([[target_text]], np.object_),
    }


def grpc_streaming(url: str, values: dict[str, Array]) -> Array:
    """``client_grpc.py --mode streaming``."""
    answers: queue.Queue[Any] = queue.Queue()
    chunks: list[Array] = []
    with triton.InferenceServerClient(url) as client:
        client.start_stream(callback=lambda result, error: answers.put(error or result))
        client.async_stream_infer(
            MODEL,
            _inputs(triton, values),
            request_id="0b5e",
            outputs=[triton.InferRequestedOutput("waveform")],
            enable_empty_final_response=True,
        )
        while True:
            result = answers.get(timeout=TIMEOUT_S)
            if isinstance(result, Exception):
                raise result
            if result.get_response().parameters["triton_final_response"].bool_param:
                return np.concatenate(chunks)
            chunks.append(result.as_numpy("waveform").reshape(-1))


def grpc_offline(url: str, values: dict[str, Array]) -> Array:
    """``client_grpc.py --mode offline``."""

    async def infer() -> Array:
        async with triton_aio.InferenceServerClient(url) as client:
            outputs = [triton_aio.InferRequestedOutput("waveform")]
            result = await client.infer(
                MODEL, _inputs(triton_aio, values), request_id="100000000", outputs=outputs
            )
            return result.as_numpy("waveform").reshape(-1)

    return asyncio.run(infer())


def http(url: str, values: dict[str, Array]) -> Array:
    """``client_http.py``: JSON both ways, and the waveform is the first output."""
    inputs = [
        {
            "name": name,
            "shape": value.shape,
            "datatype": np_to_triton_dtype(value.dtype),
            "data": value.tolist() if value.dtype != np.object_ else value[0].tolist(),
        }
        for name, value in values.items()
    ]
    request = urllib.request.Request(
        f"http://{url}/v2/models/{MODEL}/infer?request_id=0",
        json.dumps({"inputs": inputs}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        return np.array(json.load(answer)["outputs"][0]["data"], np.float32)


def _inputs(protocol: ModuleType, values: dict[str, Array]) -> list[Any]:
    inputs = []
    for name, value in values.items():
        inputs.append(protocol.InferInput(name, value.shape, np_to_triton_dtype(value.dtype)))
        inputs[-1].set_data_from_numpy(value)
    return inputs
