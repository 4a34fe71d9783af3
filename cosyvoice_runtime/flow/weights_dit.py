"""From the published names of CosyVoice3's ``flow.pt`` to those of the networks that run it."""

from __future__ import annotations

from collections.abc import Mapping

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.flow.weights import fused_projections, matrices, renamed

_RENAMES = [
    (r"^spk_embed_affine_layer\.", "speaker."),
    (r"^input_embedding\.", "token_embedding."),
    (r"^pre_lookahead_layer\.conv1\.", "encoder.look_ahead.right."),
    (r"^pre_lookahead_layer\.conv2\.", "encoder.look_ahead.left.window."),
    (r"^decoder\.estimator\.", "estimator."),
    (r"\.time_embed\.time_mlp\.0\.", ".time.first."),
    (r"\.time_embed\.time_mlp\.2\.", ".time.second."),
    (r"\.transformer_blocks\.(\d+)\.attn_norm\.linear\.", r".time.blocks.\1."),
    (r"\.norm_out\.linear\.", ".time.final."),
    (r"\.input_embed\.proj\.", ".input."),
    (r"\.input_embed\.conv_pos_embed\.conv1\.0\.", ".positions.0.conv."),
    (r"\.input_embed\.conv_pos_embed\.conv2\.0\.", ".positions.1.conv."),
    (r"\.transformer_blocks\.", ".blocks."),
    (r"\.attn\.to_([qkv])\.", r".\1."),
    (r"\.attn\.to_out\.0\.", ".out."),
    (r"\.ff\.ff\.0\.0\.", ".widen."),
    (r"\.ff\.ff\.2\.", ".narrow."),
    (r"\.proj_out\.", ".projection."),
]
ANGLES = "decoder.estimator.rotary_embed.inv_freq"
"""Constants of the rotation, which half precision would spoil: they are computed."""


def from_published(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """State dict of the flow's network out of ``flow.pt``'s tensors.

    The look-ahead's convolutions become matrices, the three attention projections become one.
    """
    kept = {name: tensor for name, tensor in tensors.items() if name != ANGLES}
    look_ahead = {name: tensor for name, tensor in kept.items() if name.startswith("pre_lookahead_layer.")}
    return fused_projections(renamed({**kept, **matrices(look_ahead)}, _RENAMES))
