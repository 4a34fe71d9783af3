"""CosyVoice3's flow in place of an encoder: each token's embedding, mixed with those of the next."""

from __future__ import annotations

from torch import Tensor, nn

from cosyvoice_runtime.checkpoint.config_flow import LookAheadConfig
from cosyvoice_runtime.flow.past_layout import PastLayout
from cosyvoice_runtime.flow.torch.encoder import LookAhead
from cosyvoice_runtime.flow.torch.layers import Past


class LookAheadEncoder(nn.Module):
    """The look-ahead layer alone, each token's result for all its frames. Nothing in it attends."""

    def __init__(self, config: LookAheadConfig, width: int, lookahead: int, frames_per_token: int) -> None:
        super().__init__()
        self.frames_per_token = frames_per_token
        self.token_layout = PastLayout(heads=1, head_dim=1)
        self.frame_layout = PastLayout(heads=1, head_dim=1)
        self.look_ahead = LookAhead(width, lookahead, self.token_layout, config.channels)

    def forward(
        self,
        x: Tensor,
        present: Tensor,
        visible_tokens: Tensor | None,  # noqa: ARG002
        visible_frames: Tensor | None,  # noqa: ARG002
        token_past: Past,
        frame_past: Past,  # noqa: ARG002
    ) -> Tensor:
        """As :meth:`FlowEncoder.forward <cosyvoice_runtime.flow.torch.encoder.FlowEncoder.forward>`."""
        mixed = self.look_ahead(x * present[:, :, None], token_past)
        return mixed.repeat_interleave(self.frames_per_token, dim=1)
