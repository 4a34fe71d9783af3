"""Streams 0, 1, ... COUNT-1, PAUSE_MS apart.

A COUNT of -1 ends the model's process as a crash would, -2 is refused for want of room, and -3 is an internal
error.
"""

import os
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.metrics.metrics import RequestCount

ERRORS = {
    -2: ("UNAVAILABLE: no room", "UNAVAILABLE"),
    -3: ("INTERNAL: try again later", "INTERNAL"),
}


class TritonPythonModel:
    def initialize(self, args):
        self.inflight = RequestCount(args["model_name"])
        self.counted = Metrics(args["model_name"]).counter("counted_total", "Numbers sent.")
        # Two threads that talk to the server at once may crash it, or hang.
        self.server = threading.Lock()

    def execute(self, requests):
        for request in requests:
            count, pause_ms = (
                int(pb_utils.get_input_tensor_by_name(request, name).as_numpy()[0])
                for name in ("COUNT", "PAUSE_MS")
            )
            if count == -1:
                os._exit(9)
            if count in ERRORS:
                self.refuse(request.get_response_sender(), *ERRORS[count])
                continue
            self.inflight.enter()
            sender = request.get_response_sender()
            threading.Thread(target=self.stream, args=(sender, count, pause_ms / 1000)).start()

    def refuse(self, sender, message, code):
        error = pb_utils.TritonError(message, getattr(pb_utils.TritonError, code))
        response = pb_utils.InferenceResponse(error=error)
        with self.server:
            sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def stream(self, sender, count, pause_s):
        for value in range(count):
            time.sleep(pause_s)
            tensor = pb_utils.Tensor("VALUE", np.array([value], np.int32))
            with self.server:
                sender.send(pb_utils.InferenceResponse([tensor]))
            self.counted.add(1)
        with self.server:
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        self.inflight.leave()
