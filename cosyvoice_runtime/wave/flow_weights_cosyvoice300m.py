"""From the published names of CosyVoice-300M's ``flow.pt`` to those of the networks that run it."""

from __future__ import annotations

from collections.abc import Mapping

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.wave.flow_weights import fused_projections, renamed

ENCODER_RENAMES = [
    (r"\bembed\.out\.0\.", "embed.linear."),
    (r"\bembed\.out\.1\.", "embed.norm."),
    (r"\bafter_norm\.", "norm."),
    (r"\bencoders\.", "layers."),
    (r"\.self_attn\.linear_([qkv])\.", r".\1."),
    (r"\.self_attn\.linear_pos\.", ".position."),
    (r"\.self_attn\.linear_out\.", ".out."),
    (r"\.self_attn\.pos_bias_u$", ".content_bias"),
    (r"\.self_attn\.pos_bias_v$", ".position_bias"),
    (r"\.(?:norm_mha|norm1)\.", ".norm_attention."),
    (r"\.(?:norm_ff|norm2)\.", ".norm_feed_forward."),
    (r"\.feed_forward\.w_1\.", ".widen."),
    (r"\.feed_forward\.w_2\.", ".narrow."),
]
"""Of layers of relative attention, in ``llm.pt`` as well."""
_REGULATOR_RENAMES = [
    (r"^length_regulator\.model\.12\.", "regulator.last."),
    *((rf"^length_regulator\.model\.{3 * layer}\.", f"regulator.convs.{layer}.") for layer in range(4)),
    *((rf"^length_regulator\.model\.{3 * layer + 1}\.", f"regulator.norms.{layer}.") for layer in range(4)),
]
_ESTIMATOR_RENAMES = [
    (r"^decoder\.estimator\.", "estimator."),
    (r"\.time_mlp\.linear_1\.", ".time_in."),
    (r"\.time_mlp\.linear_2\.", ".time_out."),
    (r"\.(down|mid|up)_blocks\.(\d+)\.0\.", r".\1.\2.resnet."),
    (r"\.(down|mid|up)_blocks\.(\d+)\.1\.", r".\1.\2.blocks."),
    (r"\.(down|up)_blocks\.(\d+)\.2\.(?:conv\.)?", r".\1.\2.conv."),
    (r"\.resnet\.mlp\.1\.", ".resnet.time."),
    (r"\.block1\.block\.0\.", ".first.conv."),
    (r"\.block1\.block\.1\.", ".first.norm."),
    (r"\.block2\.block\.0\.", ".second.conv."),
    (r"\.block2\.block\.1\.", ".second.norm."),
    (r"\.res_conv\.", ".shortcut."),
    (r"\.norm1\.", ".norm_attention."),
    (r"\.norm3\.", ".norm_feed_forward."),
    (r"\.attn1\.to_([qkv])\.", r".\1."),
    (r"\.attn1\.to_out\.0\.", ".out."),
    (r"\.ff\.net\.0\.proj\.", ".widen."),
    (r"\.ff\.net\.2\.", ".narrow."),
    (r"\.final_block\.block\.0\.", ".final.conv."),
    (r"\.final_block\.block\.1\.", ".final.norm."),
    (r"\.final_proj\.", ".projection."),
]
_OUTER_RENAMES = [
    (r"^spk_embed_affine_layer\.", "speaker."),
    (r"^input_embedding\.", "token_embedding."),
    (r"^encoder_proj\.", "encoder_projection."),
]


def from_published(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """State dict of :class:`~cosyvoice_runtime.flow.regulated_flow.RegulatedFlowNetwork` out of ``flow.pt``.

    Convolutions of one tap become matrices; the three attention projections become one.
    """
    encoder = {name: tensor for name, tensor in tensors.items() if name.startswith("encoder.")}
    others = {name: tensor for name, tensor in tensors.items() if name not in encoder}
    state = renamed(encoder, ENCODER_RENAMES)
    state |= renamed(others, [*_OUTER_RENAMES, *_REGULATOR_RENAMES, *_ESTIMATOR_RENAMES])
    return fused_projections({name: _of_one_tap(name, tensor) for name, tensor in state.items()})


def _of_one_tap(name: str, tensor: Array) -> Array:
    """Shortcuts and the last projection of the estimator are linear layers here."""
    linear = name.startswith("estimator.") and tensor.ndim == 3 and tensor.shape[2] == 1
    return tensor.squeeze(2) if linear else tensor
