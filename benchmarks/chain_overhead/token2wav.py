"""Stands for token2wav: as many samples as the tokens stand for, each the number of the utterance."""

from __future__ import annotations

import numpy as np
from moments import note, now

from cosyvoice_runtime.serving.triton.request import Inputs, answer

SAMPLES_PER_TOKEN = 960


class TritonPythonModel:
    def initialize(self, arguments):  # noqa: ARG002
        self.numbers = {}

    def execute(self, requests):
        start = now()
        for request in requests:
            inputs = Inputs(request)
            if inputs.scalar("cancel", default=False):
                answer(request, "token2wav", {"waveform": np.zeros((1, 0), np.float32)})
                continue
            utterance, position = inputs.text("utterance_id"), inputs.scalar("position")
            tokens = len(inputs.required("speech_tokens"))
            number = self.numbers.setdefault(utterance, len(self.numbers))
            waveform = np.full((1, tokens * SAMPLES_PER_TOKEN), number, np.float32)
            answer(request, "token2wav", {"waveform": waveform})
            note("token2wav", utterance=utterance, number=number, position=position, tokens=tokens,
                 start=start, end=now())  # fmt: skip
        return [None] * len(requests)
