"""What tests of the whole chain say and hear."""

from __future__ import annotations

import numpy as np

from cosyvoice_client import ClientError, Reference, SpeechClient, SpeechRequest
from cosyvoice_runtime.supervisor import Server

TEXT = "Hello world. How are you?"
TOLERANCE = 1e-3
TIMEOUT_S = 600.0
FEW_STEPS = 2
"""Steps of the flow's solver in servers of these tests, and in the libraries that they are compared with."""


def recording(pitch_hz: float, seconds: float = 1.4, rate: int = 16_000) -> np.ndarray:
    time = np.arange(int(rate * seconds)) / rate
    tone = sum(np.sin(2 * np.pi * pitch_hz * k * time) / k for k in range(1, 9))
    return (0.2 * tone * (1 + np.sin(2 * np.pi * 4 * time))).astype(np.float32)


def reference(pitch_hz: float = 150) -> Reference:
    return Reference(recording(pitch_hz), text="a short reference")


def client(server: Server) -> SpeechClient:
    """One that waits on a busy machine."""
    return SpeechClient(server.grpc_url, timeout_s=TIMEOUT_S)


def spoken(server: Server, request: SpeechRequest) -> np.ndarray:
    return np.concatenate([chunk.samples for chunk in client(server).speak(request)])


def outcome(server: Server, request: SpeechRequest) -> np.ndarray | ClientError:
    try:
        return spoken(server, request)
    except ClientError as error:
        return error


def assert_same_audio(actual: np.ndarray, expected: np.ndarray, tolerance: float = TOLERANCE) -> None:
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, atol=tolerance, rtol=0)
