"""token2wav on torch, whose calls may be captured."""

from __future__ import annotations

import torch

from cosyvoice_runtime.flow.torch.graphed_calls import CallBuckets
from cosyvoice_runtime.flow.torch.paged_call import PagedSolver
from cosyvoice_runtime.flow.torch.stream import FlowStream
from cosyvoice_runtime.gpu.cuda_graphs import GraphCapture
from cosyvoice_runtime.token2wav.token2wav import Token2Wav
from cosyvoice_runtime.vocoder.geometry import context
from cosyvoice_runtime.vocoder.torch import HiFTStream


class TorchToken2Wav(Token2Wav):
    """Both parts on torch; names them as such."""

    def __init__(self, flow: FlowStream, vocoder: HiFTStream, lookahead_frames: int | None = None) -> None:
        super().__init__(flow, vocoder, lookahead_frames)
        self.torch_flow, self.torch_vocoder = flow, vocoder

    def beside(self, second: torch.cuda.Stream | None = None) -> TorchToken2Wav:
        """The same networks and pages for utterances in another stream, to be captured by themselves.

        Args:
            second: for the vocoder, beside what the flow does next.
        """
        vocoder = HiFTStream(self.torch_vocoder.hift, own_stream=second)
        return TorchToken2Wav(self.torch_flow.beside(), vocoder, self.lookahead_frames)

    def capture(
        self,
        buckets: CallBuckets,
        capture: GraphCapture,
        fused: PagedSolver | None = None,
        of_vocoder: GraphCapture | None = None,
    ) -> int:
        """Replay chunks of these sizes from now on; to be called before anything is opened.

        Args:
            fused: takes the place of the flow's steps.
            of_vocoder: where the vocoder runs on another device than the flow, or in a stream of its own.

        Returns:
            the number of captured calls.
        """
        config, around = self.torch_flow.flow.config, context(self.vocoder.config)
        block = config.frames_per_token * config.encoder.chunk_tokens
        frames = [around.left + block * blocks + around.lookahead for blocks in buckets.blocks]
        calls = self.torch_flow.capture(buckets, capture, fused)
        return calls + self.torch_vocoder.capture(buckets.rows, frames, of_vocoder or capture)
