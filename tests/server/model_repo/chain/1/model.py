"""Passes a request on to ``count`` and its responses back."""

import threading

import triton_python_backend_utils as pb_utils

from cosyvoice_runtime.metrics.metrics import RequestCount


class TritonPythonModel:
    def initialize(self, args):
        self.inflight = RequestCount(args["model_name"])
        # Two threads that talk to the server at once may crash it, or hang.
        self.server = threading.Lock()

    def execute(self, requests):
        for request in requests:
            self.inflight.enter()
            threading.Thread(target=self.stream, args=(request, request.get_response_sender())).start()

    def stream(self, request, sender):
        child = pb_utils.InferenceRequest(
            model_name="count", inputs=request.inputs(), requested_output_names=["VALUE"]
        )
        with self.server:
            responses = child.exec(decoupled=True)
        for response in responses:
            with self.server:
                self.forward(response, sender)
        with self.server:
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        self.inflight.leave()

    def forward(self, response, sender):
        if response.has_error():
            sender.send(pb_utils.InferenceResponse(error=response.error()))
        elif response.output_tensors():
            sender.send(pb_utils.InferenceResponse(response.output_tensors()))
