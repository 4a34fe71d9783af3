"""``cosyvoice2`` as it is, noting when it calls token2wav and has the answer."""

from __future__ import annotations

from moments import note, now

from cosyvoice_runtime.serving.speech.speech_model import SpeechModel, calls
from cosyvoice_runtime.serving.triton.stages import TritonStages


class TritonPythonModel(SpeechModel):
    def open_stages(self, settings, vocabulary):
        return TimedStages(calls(settings), vocabulary)


class TimedStages(TritonStages):
    def wave(self, utterance_id, tokens, position, last, settings, cushion_s):
        start = now()
        samples = super().wave(utterance_id, tokens, position, last, settings, cushion_s)
        note("cosyvoice2", utterance=utterance_id, position=position, start=start, end=now())
        return samples
