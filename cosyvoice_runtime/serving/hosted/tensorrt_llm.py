"""The model ``tensorrt_llm``: ids of the merged vocabulary in, speech ids out, with in-flight batching."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.merged_vocabulary import MergedVocabulary, end_of_prompt_id
from cosyvoice_runtime.gpu.partitions.shared_gpu import SharedGpu
from cosyvoice_runtime.lm import FinishReason, Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.engine import prepare_engine
from cosyvoice_runtime.lm.prompt import NO_ADAPTERS
from cosyvoice_runtime.lm.scheduler.job import Reader
from cosyvoice_runtime.lm.scheduler.load_metrics import LoadMetrics
from cosyvoice_runtime.lm.scheduler.request import (
    FIELDS,
    SPEAKER,
    TEXT_FIELDS,
    Request,
    RequestReader,
    read_text,
)
from cosyvoice_runtime.lm.scheduler.scheduler import Scheduler
from cosyvoice_runtime.metrics import Metrics, trace
from cosyvoice_runtime.metrics.metrics import RequestCount
from cosyvoice_runtime.serving.not_finite import NotFiniteCount, speech_lm_remedies
from cosyvoice_runtime.serving.triton.request import Inputs, Reply
from cosyvoice_runtime.settings import TensorrtLlmSettings

logger = logging.getLogger(__name__)

NAME = TensorrtLlmSettings.name


class SpeechLmModel:
    """The speech LM's model over an engine that it opens.

    Args:
        shared: the GPU that token2wav computes on in this process.
    """

    def __init__(self, settings: TensorrtLlmSettings, shared: SharedGpu | None = None) -> None:
        layout = Layout(settings.checkpoint_dir)
        config = load_config(settings.checkpoint_dir).speech_lm
        self.vocabulary = MergedVocabulary.of(layout, config)
        self.reader = RequestReader(
            self.vocabulary,
            settings.max_tokens,
            settings.max_sequence_tokens,
            settings.engine,
            end_of_prompt_id(layout),
            config.speaker_values,
            config.interleaves_text,
            layout.family.silent_tokens,
        )
        if not self.reader.serves_adapters and (names := layout.voice_adapters):
            logger.warning("adapters %s stay unused: %s", ", ".join(names), NO_ADAPTERS)
        weights = settings.weight_format if settings.engine == "onnx" else settings.dtype
        engine = {"engine": settings.engine, "weights": weights}
        Metrics(NAME).gauge("cosyvoice_lm_engine", "What runs the speech LM: 1.", **engine).set(1)
        self.count = RequestCount(NAME)
        self.not_finite = NotFiniteCount(Metrics(NAME), speech_lm_remedies(settings))
        self.silent_tokens = layout.family.silent_tokens
        self.takes_spoken = self.reader.takes_spoken
        self.scheduler = Scheduler(
            prepare_engine(settings, shared),
            settings.max_queue_size,
            LoadMetrics(Metrics(NAME)),
            settings.text_timeout_s,
            shared,
        )

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            self.count.enter()
            reply = TokenReply(request, self.vocabulary.speech_offset, self.count, self.not_finite)
            try:
                self._accept(Inputs(request), request.request_id(), reply)
            except Exception as error:
                reply.finish(error)

    def speak(
        self,
        prompt: Prompt,
        sampling: SamplingOptions,
        request_id: str,
        groups: tuple[int, int],
        reader: Reader,
        in_pieces: bool,
        is_awaited: bool,
        with_rows: bool,
    ) -> None:
        """Draw speech tokens as `SpokenTokens` says."""
        trace.note("the speech LM has the request", request_id)
        request = self.reader.accept(prompt, sampling, request_id, groups, in_pieces, is_awaited, with_rows)
        self.scheduler.submit(request, reader)

    def push_text(self, request_id: str, ids: Sequence[int], ended: bool) -> None:
        self.scheduler.push_text(request_id, ids, ended)

    def stop(self, request_id: str) -> None:
        self.scheduler.stop(request_id)

    def with_remedy(self, error: Exception) -> Exception:
        return self.not_finite.with_remedy(error)

    def finalize(self) -> None:
        self.scheduler.close()

    def _accept(self, inputs: Inputs, request_id: str, reply: TokenReply) -> None:
        if inputs.scalar("stop", default=False):
            self.scheduler.stop(request_id)
            reply.finish()
            return
        more_text, end_text = inputs.array("more_text"), inputs.scalar("end_text", default=False)
        if more_text is not None or end_text:
            ids = [] if more_text is None else more_text.tolist()
            self.scheduler.push_text(request_id, read_text(ids, self.vocabulary), end_text)
            reply.finish()
            return
        trace.note("the speech LM has the request", request_id)
        request = self._read(inputs, request_id)
        reply.echo, reply.utterance = request.echo, request_id
        self.scheduler.submit(request, reply)

    def _read(self, inputs: Inputs, request_id: str) -> Request:
        if inputs.scalar("self_test", default=False):
            return self.reader.read(self.vocabulary.shortest_prompt, {"request_output_len": 1})
        fields = {name: inputs.text(name) if name in TEXT_FIELDS else inputs.scalar(name) for name in FIELDS}
        speaker = inputs.array(SPEAKER)
        embedding = () if speaker is None else tuple(speaker.tolist())
        return self.reader.read(inputs.required("input_ids").tolist(), fields, request_id, embedding)


class TokenReply:
    """The speech tokens as responses [batch 1, beam 1, new ids] of the merged vocabulary."""

    def __init__(
        self, request: Any, speech_offset: int, count: RequestCount, not_finite: NotFiniteCount
    ) -> None:
        self.echo: tuple[int, ...] = ()
        self.utterance = ""
        self._reply = Reply(request, NAME)
        self._speech_offset = speech_offset
        self._count = count
        self._not_finite = not_finite

    @property
    def cancelled(self) -> bool:
        return self._reply.cancelled

    def send(
        self,
        tokens: Sequence[int],
        finish_reason: FinishReason | None,
        rows: Floats | None = None,
    ) -> None:
        trace.note("the speech LM sends tokens", self.utterance)
        ids = [*self.echo, *(self._speech_offset + token for token in tokens)]
        reason = "" if finish_reason is None else finish_reason.value
        self._reply.send(
            output_ids=np.array(ids, np.int32).reshape(1, 1, -1),
            sequence_length=np.array([[len(ids)]], np.int32),
            finish_reason=np.array([[reason.encode()]], np.object_),
            **({} if rows is None else {"attention": rows[None]}),
        )

    def finish(self, error: Exception | None = None) -> None:
        try:
            self._reply.finish(None if error is None else self._not_finite.with_remedy(error))
        finally:
            self._count.leave()
