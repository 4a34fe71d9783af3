"""The other models of the repository as an utterance's stages."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.huggingface import MergedVocabulary
from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.lm.limits import FinishReason, TokenLimits
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling_options import SamplingOptions
from cosyvoice_runtime.pipeline.stages import TokenGroup, WaveSettings
from cosyvoice_runtime.serving.triton.calls import CallError, Calls, Outputs
from cosyvoice_runtime.voice.voice import Voice

logger = logging.getLogger(__name__)


class TritonStages:
    """Calls with a batch of one.

    Args:
        vocabulary: of ``tensorrt_llm``'s ids.
    """

    def __init__(self, calls: Calls, vocabulary: MergedVocabulary) -> None:
        self._calls = calls
        self._vocabulary = vocabulary

    def speech_tokens(self, samples: Tensor) -> Tensor:
        outputs = self._call("audio_tokenizer", recording(samples), "prompt_speech_tokens")
        return torch.from_numpy(outputs["prompt_speech_tokens"].reshape(-1).astype(np.int32))

    def speaker_embedding(self, samples: Tensor) -> Tensor:
        outputs = self._call("speaker_embedding", recording(samples), "prompt_spk_embedding")
        return torch.from_numpy(outputs["prompt_spk_embedding"].reshape(-1).astype(np.float32))

    def generate(
        self, prompt: Prompt, sampling: SamplingOptions, request_id: str, first_tokens: int
    ) -> Iterator[TokenGroup]:
        inputs = self._prompt(prompt) | sampling_inputs(sampling, len(prompt.text))
        inputs["first_tokens"] = np.array([[first_tokens]], np.int32)
        for outputs in self._calls.stream(
            "tensorrt_llm", inputs, ["output_ids", "finish_reason"], request_id
        ):
            tokens = outputs["output_ids"].reshape(-1) - self._vocabulary.speech_offset
            reason = outputs["finish_reason"].reshape(-1)[0].decode()
            yield TokenGroup(tokens.tolist(), FinishReason(reason) if reason else None)

    def stop(self, request_id: str) -> None:
        inputs = {"stop": np.array([[True]]), **lengths(0, 1)}
        for _ in self._calls.stream("tensorrt_llm", inputs, ["output_ids"], request_id):
            pass

    def wave(
        self,
        utterance_id: str,
        tokens: Sequence[int],
        position: int,
        last: bool,
        settings: WaveSettings,
        cushion_s: float,
    ) -> Tensor:
        inputs = {
            "utterance_id": text(utterance_id),
            "speech_tokens": np.array(tokens, np.int32)[None],
            "position": np.array([[position]], np.int32),
            "last": np.array([[last]]),
            "voice_key": text(settings.voice.key),
            "noise_seed": np.array([[settings.noise_seed]], np.int64),
            "speed": np.array([[settings.speed]], np.float32),
            "cushion": np.array([[cushion_s]], np.float32),
        }
        try:
            outputs = self._call("token2wav", inputs, "waveform")
        except CallError as error:
            if error.status != "NOT_FOUND" or position:
                raise
            outputs = self._call("token2wav", inputs | voice_inputs(settings.voice), "waveform")
        return torch.tensor(outputs["waveform"].reshape(-1))  # a copy: the array is read-only

    def drop(self, utterance_id: str) -> None:
        inputs = {
            "utterance_id": text(utterance_id),
            "speech_tokens": np.zeros((1, 0), np.int32),
            "position": np.zeros((1, 1), np.int32),
            "last": np.array([[True]]),
            "voice_key": text(""),
            "noise_seed": np.zeros((1, 1), np.int64),
            "speed": np.ones((1, 1), np.float32),
            "cancel": np.array([[True]]),
        }
        try:
            self._call("token2wav", inputs, "waveform")
        except (CallError, CosyVoiceError) as error:
            logger.warning("token2wav keeps utterance %s until it is idle: %s", utterance_id, error)

    def close(self) -> None:
        self._calls.close()

    def _prompt(self, prompt: Prompt) -> Outputs:
        vocabulary = self._vocabulary
        speech = [vocabulary.speech_offset + token for token in prompt.prompt_speech]
        ids = [vocabulary.sos_id, *prompt.prompt_text, *prompt.text, vocabulary.task_id, *speech]
        return {"input_ids": np.array([ids], np.int32), "input_lengths": np.array([[len(ids)]], np.int32)}

    def _call(self, model: str, inputs: Outputs, output: str) -> Outputs:
        return self._calls.call(model, inputs, [output])


def sampling_inputs(sampling: SamplingOptions, text_tokens: int) -> Outputs:
    """Sampling and length of ``tensorrt_llm``'s request."""
    limits = TokenLimits.of(sampling, text_tokens)
    return {
        "request_output_len": np.array([[limits.max_tokens]], np.int32),
        "min_tokens": np.array([[limits.min_tokens]], np.int32),
        "streaming": np.array([[True]]),
        "seed": np.array([[sampling.seed or 0]], np.uint64),
        "sampling_strategy": text(sampling.strategy),
        "runtime_top_k": np.array([[sampling.top_k]], np.int32),
        "runtime_top_p": np.array([[sampling.top_p]], np.float32),
        "temperature": np.array([[sampling.temperature]], np.float32),
        "repetition_penalty": np.array([[sampling.repetition_penalty]], np.float32),
        "ras_window": np.array([[sampling.window]], np.int32),
        "ras_threshold": np.array([[sampling.tau]], np.float32),
    }


def lengths(inputs: int, outputs: int) -> Outputs:
    """The two inputs that every request of ``tensorrt_llm`` has."""
    return {
        "input_lengths": np.array([[inputs]], np.int32),
        "request_output_len": np.array([[outputs]], np.int32),
    }


def recording(samples: Tensor) -> Outputs:
    """16 kHz samples as the extractors' inputs."""
    return {
        "reference_wav": samples.numpy().astype(np.float32)[None],
        "reference_wav_len": np.array([[len(samples)]], np.int32),
    }


def voice_inputs(voice: Voice) -> Outputs:
    """A voice's tensors as token2wav's inputs."""
    return {
        "prompt_speech_tokens": voice.speech_tokens.numpy().astype(np.int32)[None],
        "prompt_speech_feat": voice.prompt_mel.numpy()[None],
        "prompt_spk_embedding": voice.speaker_embedding.numpy()[None],
    }


def text(value: str) -> npt.NDArray[Any]:
    """A string as a tensor of one element in a batch of one."""
    return np.array([[value.encode()]], np.object_)
