"""Streams 0, 1, ... COUNT-1, PAUSE_MS apart; a negative COUNT ends its process as a crash would."""

import os
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

from cosyvoice_runtime.metrics.request_count import RequestCount


class TritonPythonModel:
    def initialize(self, args):
        self.inflight = RequestCount(args["model_name"])
        # Two threads that talk to the server at once may crash it, or hang.
        self.server = threading.Lock()

    def execute(self, requests):
        for request in requests:
            count, pause_ms = (
                int(pb_utils.get_input_tensor_by_name(request, name).as_numpy()[0])
                for name in ("COUNT", "PAUSE_MS")
            )
            if count < 0:
                os._exit(9)
            self.inflight.enter()
            sender = request.get_response_sender()
            threading.Thread(target=self.stream, args=(sender, count, pause_ms / 1000)).start()

    def stream(self, sender, count, pause_s):
        for value in range(count):
            time.sleep(pause_s)
            tensor = pb_utils.Tensor("VALUE", np.array([value], np.int32))
            with self.server:
                sender.send(pb_utils.InferenceResponse([tensor]))
        with self.server:
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        self.inflight.leave()
