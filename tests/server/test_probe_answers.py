"""How a probe judges what a server answers, by the status alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from cosyvoice_runtime.supervisor import Probe
from cosyvoice_runtime.supervisor.calls import ProbeError

PROBE = Probe("count", {"COUNT": np.array([[1, 2]], np.int32), "TEXT": np.array([b"hi"], np.object_)})
OUTPUT = service_pb2.ModelInferResponse(
    outputs=[service_pb2.ModelInferResponse.InferOutputTensor(name="VALUE", datatype="INT32", shape=[1])]
)
EMPTY = service_pb2.ModelInferResponse()
Answer = service_pb2.ModelInferResponse | grpc.StatusCode | str
"""A response, the status of an error, or Triton's text of a refusal within a stream."""


class FakeTriton(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers every request with the same answers; its errors all have one text."""

    def __init__(self, decoupled: bool, answers: list[Answer]) -> None:
        self._decoupled = decoupled
        self._answers = answers
        self.requests: list[service_pb2.ModelInferRequest] = []

    def ModelConfig(self, request, context):  # noqa: N802
        answer = service_pb2.ModelConfigResponse()
        answer.config.model_transaction_policy.decoupled = self._decoupled
        return answer

    def ModelInfer(self, request, context):  # noqa: N802
        self.requests.append(request)
        [answer] = self._answers
        if isinstance(answer, grpc.StatusCode):
            context.abort(answer, "the text of an error")
        return answer

    def ModelStreamInfer(self, requests, context):  # noqa: N802
        # With it Triton 24.10 may abort.
        assert "triton_grpc_error" not in dict(context.invocation_metadata())
        self.requests += requests
        for answer in self._answers:
            if isinstance(answer, str):
                yield service_pb2.ModelStreamInferResponse(error_message=answer)
            else:
                yield service_pb2.ModelStreamInferResponse(infer_response=answer)


@pytest.fixture
def probe() -> Iterator[Callable[..., FakeTriton]]:
    """``probe(decoupled, *answers)`` probes a server that answers so, and returns it."""
    servers: list[grpc.Server] = []

    def run(decoupled: bool, *answers: Answer, probed: Probe = PROBE) -> FakeTriton:
        fake = FakeTriton(decoupled, list(answers))
        servers.append(grpc.server(ThreadPoolExecutor(2)))
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(fake, servers[-1])
        port = servers[-1].add_insecure_port("127.0.0.1:0")
        servers[-1].start()
        probed(f"127.0.0.1:{port}", 60.0)
        return fake

    yield run
    for server in servers:
        server.stop(None)


@pytest.mark.parametrize("decoupled", [True, False])
def test_probe_sends_its_inputs_once(probe, decoupled):
    [request] = probe(decoupled, OUTPUT).requests
    assert request.model_name == "count"
    assert [(tensor.name, tensor.datatype, list(tensor.shape)) for tensor in request.inputs] == [
        ("COUNT", "INT32", [1, 2]),
        ("TEXT", "BYTES", [1]),
    ]
    assert list(request.raw_input_contents) == [b"\x01\0\0\0\x02\0\0\0", b"\x02\0\0\0hi"]


def test_model_that_is_busy_works(probe):
    probe(False, grpc.StatusCode.UNAVAILABLE)
    probe(True, "UNAVAILABLE: 2 are in progress")


@pytest.mark.parametrize("status", [grpc.StatusCode.INTERNAL, grpc.StatusCode.INVALID_ARGUMENT])
def test_any_other_status_is_a_failure(probe, status):
    with pytest.raises(ProbeError, match="count: the text of an error"):
        probe(False, status)
    with pytest.raises(ProbeError, match="count: the text of an error"):
        probe(True, f"{status.name}: the text of an error")


def test_error_after_the_first_response_is_a_failure(probe):
    with pytest.raises(ProbeError, match="count: the text of an error"):
        probe(True, OUTPUT, "INTERNAL: the text of an error")


@pytest.mark.parametrize("text", ["UNAVAILABLE", "it is UNAVAILABLE: try again later"])
def test_text_of_an_error_decides_nothing(probe, text):
    with pytest.raises(ProbeError, match=text):
        probe(True, text)


@pytest.mark.parametrize("answers", [(), (EMPTY,)])
def test_answer_without_output_is_a_failure(probe, answers):
    with pytest.raises(ProbeError, match="an answer without any output"):
        probe(True, *answers)
    with pytest.raises(ProbeError, match="an answer without any output"):
        probe(False, EMPTY)


def test_server_that_cannot_be_reached_is_not_a_busy_one():
    with pytest.raises(ProbeError, match="count: "):
        PROBE("127.0.0.1:9", 10.0)


LOOKING = replace(PROBE, numbers=True)
SINE = np.sin(np.arange(960, dtype=np.float32))
QUIET = np.zeros(960, np.float32)


def floats(name: str, *values: float) -> service_pb2.ModelInferResponse:
    array = np.array(values, np.float32)
    output = service_pb2.ModelInferResponse.InferOutputTensor(name=name, datatype="FP32", shape=array.shape)
    return service_pb2.ModelInferResponse(outputs=[output], raw_output_contents=[array.tobytes()])


@pytest.mark.parametrize("decoupled", [True, False])
@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("prompt_spk_embedding", [0.1, float("nan")], "count: NaN or infinity in prompt_spk_embedding; "),
        ("prompt_spk_embedding", [0.1, float("-inf")], "count: NaN or infinity in prompt_spk_embedding; "),
        ("waveform", [*SINE, float("inf")], "count: NaN or infinity in waveform; "),
        ("waveform", QUIET, "count: all samples of waveform are 0: the flow or the vocoder gives no sound; "),
        ("waveform", 0.99 * np.sign(SINE), "count: most samples of waveform are clipped"),
    ],
)
def test_wrong_numbers_are_a_failure_where_they_are_looked_at(probe, decoupled, name, values, told):
    with pytest.raises(ProbeError, match=told) as caught:
        probe(decoupled, floats(name, *values), probed=LOOKING)
    assert "./run.sh check" in str(caught.value)
    probe(decoupled, floats(name, *values))


@pytest.mark.parametrize(
    "answers",
    [
        [floats("waveform", *SINE)],
        [floats("waveform", *QUIET), floats("waveform", *SINE)],
        [floats("waveform", *SINE), floats("waveform")],
        [floats("waveform", *(1.1 * SINE.clip(-0.9, 0.9)))],
        [floats("waveform")],
        [floats("prompt_spk_embedding", 0.0, 0.0)],
        [OUTPUT],
    ],
    ids=["speech", "a pause first", "an empty end", "loud", "nothing to say", "zeros of others", "integers"],
)
def test_sound_numbers_are_none(probe, answers):
    probe(True, *answers, probed=LOOKING)
