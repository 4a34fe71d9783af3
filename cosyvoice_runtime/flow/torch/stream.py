"""The streaming flow on torch."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from cosyvoice_runtime.flow.paged_flow import FlowState, FlowWork, PagedFlow
from cosyvoice_runtime.flow.torch.batched_mel import AnyMel, MelCut, joined_mel, mel_tensor
from cosyvoice_runtime.flow.torch.call_inputs import BatchShape, PagedInputs
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.graphed_calls import CallBuckets, GraphedCalls
from cosyvoice_runtime.flow.torch.paged_call import PagedCall, PagedSolver
from cosyvoice_runtime.flow.torch.pages import PagePool
from cosyvoice_runtime.flow.voice_flow import FlowPrefix, FlowPrompt, TokenSpan
from cosyvoice_runtime.gpu.cuda_graphs import EagerCalls, GraphCapture, split_graph_rows
from cosyvoice_runtime.gpu.transfer import on_gpu


class Milestone:
    """The work that the current stream of a device has been given until now. Asked no more once it is done.

    Used by one thread at a time.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._event: torch.cuda.Event | None = torch.cuda.current_stream(device).record_event()

    def before_next(self) -> None:
        """The current stream's next work comes after it."""
        if self._event is None:
            return
        if self._event.query():
            self._event = None
        else:
            torch.cuda.current_stream(self._device).wait_event(self._event)

    def wait(self) -> None:
        """Wait until it is done."""
        if self._event is not None:
            self._event.synchronize()
            self._event = None


class FlowStream(PagedFlow):
    """A :class:`~cosyvoice_runtime.flow.torch.flow.Flow` over pages; mels are tensors on its device.

    Args:
        num_pages: the memory is ``num_pages * page_bytes``.
        eager: counts calls without a captured graph; by default one of its own.
    """

    flow: Flow
    pool: PagePool

    def __init__(self, flow: Flow, num_pages: int, eager: EagerCalls | None = None) -> None:
        super().__init__(flow, PagePool(flow, num_pages))
        self._on_gpu = on_gpu(flow.device)
        self.eager = eager or EagerCalls()
        self._graphs: GraphedCalls | None = None
        self._no_mel = torch.zeros(flow.config.mel_bins, 0, device=flow.device)

    @property
    def eager_calls(self) -> int:
        return self.eager.count

    def forget_counts(self) -> None:
        super().forget_counts()
        self.eager.count = 0

    def capture(self, buckets: CallBuckets, capture: GraphCapture, fused: PagedSolver | None = None) -> int:
        """Replay calls of these sizes from now on. Longer new speech is computed in several calls; a call
        that looks back further than all buckets runs eagerly, in plain steps.

        Args:
            fused: takes the place of the solver's steps in what is captured.

        Returns:
            the number of captured calls; none without pages, where every call is computed from the start.
        """
        if not self.pool.num_pages:
            return 0
        self.fused = fused is not None
        self._graphs = GraphedCalls(self.flow, self.pool, buckets, capture, fused)
        return len(self._graphs)

    def fork(self) -> FlowStream:
        """The same network and pages for calls that run in another CUDA stream and are captured apart."""
        other = copy.copy(self)
        other._graphs = None
        return other

    def prefix(self, prompt: FlowPrompt) -> FlowPrefix:
        prefix = super().prefix(prompt)
        return dataclasses.replace(prefix, ready=Milestone(self.flow.device)) if self._on_gpu else prefix

    def open(self, voice: FlowPrompt | FlowPrefix) -> FlowState:
        """Start an utterance; a CUDA stream that reads a voice waits for the one that computes it."""
        if isinstance(voice, FlowPrefix) and voice.ready is not None:
            voice.ready.before_next()
        return super().open(voice)

    def close(self, held: FlowState | FlowPrefix) -> None:
        """Give back pages; a voice that is closed before it has been computed is waited for."""
        if isinstance(held, FlowPrefix) and held.ready is not None:
            held.ready.wait()
        super().close(held)

    def settle(self) -> None:
        if self._on_gpu:
            torch.cuda.current_stream(self.flow.device).synchronize()

    def begun(self) -> Callable[[], None]:
        return Milestone(self.flow.device).wait if self._on_gpu else super().begun()

    @torch.inference_mode()
    def mels(self, states: Sequence[FlowState]) -> list[AnyMel]:
        return super().mels(states)

    @torch.inference_mode()
    def advance(self, states: Sequence[FlowState]) -> list[Tensor]:
        return [mel_tensor(mel) for mel in self.mels(states)]

    def joined(self, mels: Sequence[AnyMel]) -> AnyMel:
        return joined_mel(mels) if mels else self._no_mel

    def first_parts(self, spans: Sequence[TokenSpan]) -> Sequence[TokenSpan]:
        return spans if self._graphs is None else self._graphs.first_parts(spans)

    def batches(self, work: Sequence[FlowWork]) -> Iterator[Sequence[FlowWork]]:
        graphs = self._graphs
        if graphs is None:
            return super().batches(work)
        return split_graph_rows(work, lambda item: graphs.fits(item.span), graphs.max_rows)

    def recomputed(self, spans: Sequence[TokenSpan]) -> Sequence[Tensor]:
        self._count_eager("utterances found no free page")
        return list(self.flow.solve(spans, self.flow.attention_of_whole(spans, streaming=True)))

    def continued(self, work: Sequence[FlowWork]) -> Sequence[MelCut]:
        mel = self._run(work)
        return [MelCut.row_of(mel, row) for row in range(len(work))]

    def cut(self, frames: Tensor | MelCut, start: int, stop: int) -> AnyMel:
        return frames[start:stop].T if isinstance(frames, Tensor) else frames[:, start:stop]

    def _run(self, work: Sequence[FlowWork]) -> Tensor:
        """float32 ``[B, frames, mel]``; captured calls may have more rows."""
        spans, pages = [item.span for item in work], [item.state.pages or [] for item in work]
        shape = BatchShape.of(spans, self.flow.config.encoder.chunk_tokens)
        call = None if self._graphs is None else self._graphs.fitting(shape)
        if call is None:
            self._count_eager(f"utterances look back on {shape.before} blocks")
            return PagedCall(self.flow, self.pool, PagedInputs(self.flow, shape, spans, pages)).run()
        return call.run(spans, pages)

    def _count_eager(self, reason: str) -> None:
        if self._graphs is not None:
            self.eager.add(reason)
