"""The engine with timed stages: its networks are loaded, and speak only when they are asked directly."""

import json
from pathlib import Path

from cosyvoice_runtime.engine.speech_engine import SpeechEngine
from cosyvoice_runtime.serving.hosted import host_model
from measuring.speed_curve import Curve
from measuring.timed_stages import TIMED, TimedGpu, TimedStages


class TritonPythonModel(host_model.Token2WavModel):
    def initialize(self, arguments):
        told = json.loads((Path(arguments["model_repository"]) / TIMED).read_text("utf-8"))
        gpu = TimedGpu(Curve(**told["curve"]), told["slower"], told["seed"])

        def timed_engine(lm, _waves, hop_growth):
            stages = TimedStages(lm, gpu)
            return SpeechEngine(stages, stages, hop_growth)

        host_model.SpeechEngine = timed_engine
        super().initialize(arguments)
