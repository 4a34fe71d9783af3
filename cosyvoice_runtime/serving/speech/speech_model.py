"""``cosyvoice2`` and ``cosyvoice2_offline``: the same model, in chunks or in one piece."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint import Layout, load_config, load_speakers
from cosyvoice_runtime.errors import OverloadedError
from cosyvoice_runtime.lm.limits import FinishReason
from cosyvoice_runtime.lm.merged_vocabulary import MergedVocabulary
from cosyvoice_runtime.lm.sampling_options import SamplingOptions
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.metrics.request_count import RequestCount
from cosyvoice_runtime.pipeline.hop import HopPolicy
from cosyvoice_runtime.serving.speech.admission import Admission
from cosyvoice_runtime.serving.speech.speech_metrics import Course, SpeechMetrics
from cosyvoice_runtime.serving.speech.speech_service import SAMPLE_RATE, SpeechService
from cosyvoice_runtime.serving.speech.voice_book import VoiceBook
from cosyvoice_runtime.serving.triton.bls_calls import BlsCalls
from cosyvoice_runtime.serving.triton.calls import Calls
from cosyvoice_runtime.serving.triton.ending import ending_of
from cosyvoice_runtime.serving.triton.grpc_calls import GrpcCalls
from cosyvoice_runtime.serving.triton.inputs import Inputs
from cosyvoice_runtime.serving.triton.load import read_settings
from cosyvoice_runtime.serving.triton.reply import ClientGoneError, Reply
from cosyvoice_runtime.serving.triton.speech_inputs import speech_request
from cosyvoice_runtime.serving.triton.stages import TritonStages
from cosyvoice_runtime.settings import GRPC_URL_VARIABLE, CosyVoice2Settings
from cosyvoice_runtime.text import TextFrontEnd, TextTokenizer
from cosyvoice_runtime.voice import VoiceStore
from cosyvoice_runtime.voice.digest import file_hash
from cosyvoice_runtime.voice.speakers import import_speakers

logger = logging.getLogger(__name__)


class SpeechModel:
    """What ``model.py`` calls ``TritonPythonModel``: a thread for each utterance in progress."""

    def initialize(self, arguments: Mapping[str, str]) -> None:
        settings = read_settings(arguments, CosyVoice2Settings)
        self._name = arguments["model_name"]
        self._streaming = json.loads(arguments["model_config"])["model_transaction_policy"]["decoupled"]
        self._settings = settings
        self._sampling = default_sampling(settings)
        self._metrics = SpeechMetrics(Metrics(self._name), ending_of)
        self._build(settings)
        self._requests = RequestCount(self._name)
        self._admission = Admission(settings.max_inflight_utterances)
        self._pool = ThreadPoolExecutor(settings.max_inflight_utterances, thread_name_prefix="utterance")

    def _build(self, settings: CosyVoice2Settings) -> None:
        layout, config = Layout(settings.checkpoint_dir), load_config(settings.checkpoint_dir)
        tokenizer = TextTokenizer(layout.vocabulary.parent)
        vocabulary = MergedVocabulary(len(tokenizer), config.speech_lm.speech_rows)
        self._stages = self.open_stages(settings, vocabulary)
        checkpoint_id = file_hash(layout.speech_tokenizer, layout.speaker_encoder)
        store = VoiceStore(
            settings.voices_dir,
            checkpoint_id,
            max_voices=settings.max_voices,
            max_bytes=settings.max_voices_mib << 20,
        )
        speakers = import_speakers(load_speakers(layout), tokenizer.decode, checkpoint_id)
        self._voices = VoiceBook(
            store,
            speakers,
            settings.default_voice,
            self._stages,
            checkpoint_id,
            self._metrics.voice_looked_up,
        )
        hop = HopPolicy(
            block_tokens=config.flow.encoder.chunk_tokens,
            lookahead_tokens=config.flow.lookahead_tokens,
            min_first_tokens=settings.first_hop_tokens,
            hop_tokens=settings.hop_tokens,
            max_hop_tokens=settings.max_hop_tokens,
            token_rate=config.flow.token_rate,
        )
        front_end = TextFrontEnd(tokenizer)
        self._service = SpeechService(
            self._stages,
            front_end,
            tokenizer,
            hop,
            settings.child_timeout_s,
            cut_prompts=settings.cut_prompts,
        )

    def open_stages(self, settings: CosyVoice2Settings, vocabulary: MergedVocabulary) -> TritonStages:
        """The other models, as utterances call them."""
        return TritonStages(calls(settings), vocabulary)

    def execute(self, requests: list[Any]) -> None:
        """Start each request; its answers come from a thread of its own."""
        for request in requests:
            reply = Reply(request, self._name)
            try:
                self._admission.enter()
            except OverloadedError as error:
                self._metrics.ended(error)
                reply.finish(error)
            else:
                self._requests.enter()
                self._pool.submit(self._speak, Inputs(request), reply, Course(self._metrics))

    def finalize(self) -> None:
        self._pool.shutdown()
        self._stages.close()

    def _speak(self, inputs: Inputs, reply: Reply, course: Course) -> None:
        listener = (ChunkListener if self._streaming else WholeListener)(reply, course)
        try:
            with reply, course:
                request = speech_request(
                    inputs, self._voices, self._sampling, self._settings.max_text_characters, self._streaming
                )
                self._service.speak(request, listener)
                listener.finish()
        finally:
            self._admission.leave()
            self._requests.leave()


class ChunkListener:
    """A client that gets every chunk."""

    def __init__(self, reply: Reply, course: Course) -> None:
        self._reply = reply
        self._course = course

    def require(self) -> None:
        if self._reply.cancelled:
            raise ClientGoneError

    def send(self, samples: Tensor, finish_reason: FinishReason | None) -> None:
        self._reply.send(**outputs(samples, finish_reason))
        self._course.sent(len(samples) / SAMPLE_RATE)

    def finish(self) -> None:
        """Nothing is held back."""


class WholeListener(ChunkListener):
    """A client that gets everything at once; of several pieces the least happy reason."""

    def __init__(self, reply: Reply, course: Course) -> None:
        super().__init__(reply, course)
        self._chunks: list[Tensor] = []
        self._reason = FinishReason.STOP

    def send(self, samples: Tensor, finish_reason: FinishReason | None) -> None:
        self._chunks.append(samples)
        if finish_reason not in (None, FinishReason.STOP):
            self._reason = finish_reason

    def finish(self) -> None:
        whole = torch.cat(self._chunks)
        self._reply.send_only(**outputs(whole, self._reason))
        self._course.sent(len(whole) / SAMPLE_RATE)


def outputs(samples: Tensor, finish_reason: FinishReason | None) -> dict[str, npt.NDArray[Any]]:
    """A chunk as the models' outputs."""
    reason = "" if finish_reason is None else finish_reason.value
    return {
        "waveform": samples.numpy()[None],
        "finish_reason": np.array([[reason.encode()]], np.object_),
    }


def calls(settings: CosyVoice2Settings) -> Calls:
    """The server's own gRPC port where the supervisor names it, else BLS."""
    url = os.environ.get(GRPC_URL_VARIABLE)
    if url:
        logger.info("stages are called through gRPC at %s", url)
        return GrpcCalls(url, settings.child_timeout_s)
    logger.info("stages are called through BLS: %s is not set", GRPC_URL_VARIABLE)
    # Two extractors run side by side for each utterance.
    return BlsCalls(2 * settings.max_inflight_utterances, settings.child_timeout_s)


def default_sampling(settings: CosyVoice2Settings) -> SamplingOptions:
    """How speech tokens are drawn where a request says nothing."""
    return SamplingOptions(
        strategy=settings.sampling,
        top_k=settings.top_k,
        top_p=settings.top_p,
        temperature=settings.temperature,
        repetition_penalty=settings.repetition_penalty,
        window=settings.ras_window_tokens,
        tau=settings.ras_threshold,
        ceiling=settings.max_tokens,
    )
