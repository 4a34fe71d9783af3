"""Stands for the speech LM: draws nothing, sends groups of tokens at a fixed pace."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from cosyvoice_runtime.checkpoint import Layout
from cosyvoice_runtime.checkpoint.merged_vocabulary import tokenizer_length
from cosyvoice_runtime.serving.triton.request import Inputs, Reply

TOKENS, GROUP_TOKENS, PERIOD_S = 250, 25, 0.1
MOST_AT_ONCE = 256


class TritonPythonModel:
    def initialize(self, arguments):
        parameters = json.loads(arguments["model_config"])["parameters"]
        self.speech_offset = tokenizer_length(Layout(parameters["checkpoint_dir"]["string_value"]))
        self.pool = ThreadPoolExecutor(MOST_AT_ONCE)

    def execute(self, requests):
        for request in requests:
            reply = Reply(request, "tensorrt_llm")
            if Inputs(request).scalar("stop", default=False):
                reply.finish()
            else:
                self.pool.submit(self.speak, reply)

    def speak(self, reply):
        started = time.perf_counter()
        with reply:
            for group in range(TOKENS // GROUP_TOKENS):
                time.sleep(max(0.0, started + group * PERIOD_S - time.perf_counter()))
                self.send(reply, GROUP_TOKENS, "")
            self.send(reply, 0, "stop")

    def send(self, reply, tokens, reason):
        reply.send(
            output_ids=np.full((1, 1, tokens), self.speech_offset, np.int32),
            sequence_length=np.array([[tokens]], np.int32),
            finish_reason=np.array([[reason.encode()]], np.object_),
        )

    def finalize(self):
        self.pool.shutdown()
