"""Stands for token2wav: as many samples as the tokens stand for, at once."""

from __future__ import annotations

import numpy as np

from cosyvoice_runtime.serving.triton.request import Inputs, answer

SAMPLES_PER_TOKEN = 960


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            inputs = Inputs(request)
            cancelled = inputs.scalar("cancel", default=False)
            tokens = 0 if cancelled else len(inputs.required("speech_tokens"))
            waveform = np.full((1, tokens * SAMPLES_PER_TOKEN), 0.5, np.float32)
            answer(request, "token2wav", {"waveform": waveform})
        return [None] * len(requests)
