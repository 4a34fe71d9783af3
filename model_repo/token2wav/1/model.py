"""Speech tokens to waveform, chunk by chunk, for many utterances at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from cosyvoice_runtime.metrics import Metric, Metrics
from cosyvoice_runtime.request_count import RequestCount
from cosyvoice_runtime.settings import Token2WavSettings
from cosyvoice_runtime.triton_io import Inputs, answer, read_settings
from cosyvoice_runtime.wave_service import Outcome, PromptTensors, Usage, WaveChunk, load_wave_service

PROMPT_INPUTS = ("prompt_speech_tokens", "prompt_speech_feat", "prompt_spk_embedding")


class TritonPythonModel:
    """One chunk of an utterance in, the waveform it makes certain out; see config.pbtxt."""

    def initialize(self, args: dict[str, str]) -> None:
        self._name = args["model_name"]
        metrics = Metrics(self._name)
        self._count = RequestCount(self._name)
        waiting = metrics.gauge("cosyvoice_token2wav_waiting", "Chunks that wait or are being computed.")
        settings = read_settings(args, Token2WavSettings)
        self._scheduler = load_wave_service(settings, UsageMetrics(metrics).show, waiting.set)

    def execute(self, requests: Sequence[Any]) -> list[None]:
        """Queue the chunks; their answers come from the scheduler's thread."""
        for request in requests:
            self._count.enter()
            try:
                self._scheduler.submit(decode(Inputs(request)), partial(self._deliver, request))
            except Exception as error:  # of whatever kind: the other rows go on
                self._deliver(request, error)
        return [None] * len(requests)

    def _deliver(self, request: Any, outcome: Outcome) -> None:
        failed = isinstance(outcome, Exception)
        try:
            answer(request, self._name, outcome if failed else {"waveform": outcome[None]})
        finally:
            self._count.leave()

    def finalize(self) -> None:
        self._scheduler.close()


def decode(inputs: Inputs) -> WaveChunk:
    return WaveChunk(
        utterance_id=inputs.text("utterance_id"),
        tokens=inputs.required("speech_tokens").tolist(),
        position=inputs.scalar("position"),
        last=inputs.scalar("last"),
        voice_key=inputs.text("voice_key"),
        noise_seed=inputs.scalar("noise_seed"),
        speed=inputs.scalar("speed"),
        prompt=decode_prompt(inputs),
        cancel=inputs.scalar("cancel", False),
        cushion_s=inputs.scalar("cushion", 0.0),
    )


def decode_prompt(inputs: Inputs) -> PromptTensors | None:
    if inputs.shaped("prompt_speech_feat") is None:
        return None
    # Copies: the request's memory is the server's again after the answer, the voice stays.
    tensors = [torch.from_numpy(np.array(inputs.required(name))) for name in PROMPT_INPUTS]
    frames, bins = inputs.shaped("prompt_speech_feat").shape[-2:]
    return PromptTensors(tensors[0], tensors[1].view(frames, bins), tensors[2])


class UsageMetrics:
    """What the service holds and has done, on the server's metrics page."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        gauge, counter = metrics.gauge, metrics.counter
        self._shown = {
            "utterances": gauge("cosyvoice_token2wav_utterances", "Utterances in progress."),
            "voices": gauge("cosyvoice_token2wav_voices", "Voices in memory."),
            "voice_pages": gauge("cosyvoice_token2wav_voice_pages", "Flow pages that voices hold."),
            "pages_in_use": gauge("cosyvoice_token2wav_pages_in_use", "Flow pages in use."),
            "pages": gauge("cosyvoice_token2wav_pages", "Flow pages there are."),
            "recomputes": counter("cosyvoice_token2wav_recomputes", "Utterances that found no free page."),
        }
        self._batches: dict[int, Metric] = {}

    def show(self, usage: Usage) -> None:
        for name, metric in self._shown.items():
            metric.set(getattr(usage, name))
        for rows, count in usage.batches.items():
            self._batches_of(rows).set(count)

    def _batches_of(self, rows: int) -> Metric:
        if rows not in self._batches:
            name, description = "cosyvoice_token2wav_batches", "Batches by number of utterances."
            self._batches[rows] = self._metrics.counter(name, description, rows=str(rows))
        return self._batches[rows]
