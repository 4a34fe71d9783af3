"""``cosyvoice2`` as it is, noting when it calls token2wav and has the answer."""

from __future__ import annotations

from moments import note, now

from cosyvoice_runtime.serving.speech.model import SpeechModel


class TritonPythonModel(SpeechModel):
    def open_stages(self):
        stages = super().open_stages()
        wave = stages.wave

        async def timed(utterance_id, tokens, position, *others):
            start = now()
            samples = await wave(utterance_id, tokens, position, *others)
            note("cosyvoice2", utterance=utterance_id, position=position, start=start, end=now())
            return samples

        stages.wave = timed
        return stages
