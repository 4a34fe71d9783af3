"""Published tensors of ``flow.pt`` under the names of the networks that run it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.flow.norm_range import norms_in_range

OUTER_RENAMES = [
    (r"^spk_embed_affine_layer\.", "speaker."),
    (r"^input_embedding\.", "token_embedding."),
    (r"^encoder_proj\.", "encoder_projection."),
]
"""Around encoder and estimator."""
RELATIVE_ATTENTION_RENAMES = [
    (r"\.self_attn\.linear_([qkv])\.", r".\1."),
    (r"\.self_attn\.linear_pos\.", ".position."),
    (r"\.self_attn\.linear_out\.", ".out."),
    (r"\.self_attn\.pos_bias_u$", ".content_bias"),
    (r"\.self_attn\.pos_bias_v$", ".position_bias"),
]
"""Names of the encoder's attention."""
BLOCK_RENAMES = [
    (r"\.res_conv\.", ".shortcut."),
    (r"\.norm1\.", ".norm_attention."),
    (r"\.norm3\.", ".norm_feed_forward."),
    (r"\.attn1\.to_([qkv])\.", r".\1."),
    (r"\.attn1\.to_out\.0\.", ".out."),
    (r"\.ff\.net\.0\.proj\.", ".widen."),
    (r"\.ff\.net\.2\.", ".narrow."),
]
"""Names of the estimator's shortcuts and transformer blocks."""
_RENAMES = [
    *OUTER_RENAMES,
    (r"\b(embed|up_embed)\.out\.0\.", r"\1.linear."),
    (r"\b(embed|up_embed)\.out\.1\.", r"\1.norm."),
    (r"^encoder\.pre_lookahead_layer\.conv1\.", "encoder.look_ahead.right."),
    (r"^encoder\.pre_lookahead_layer\.conv2\.", "encoder.look_ahead.left.window."),
    (r"^encoder\.up_layer\.conv\.", "encoder.upsample.window."),
    (r"^encoder\.after_norm\.", "encoder.norm."),
    (r"^encoder\.encoders\.", "encoder.layers."),
    (r"^encoder\.up_encoders\.", "encoder.up_layers."),
    *RELATIVE_ATTENTION_RENAMES,
    (r"\.norm_mha\.", ".norm_attention."),
    (r"\.norm_ff\.", ".norm_feed_forward."),
    (r"\.feed_forward\.w_1\.", ".widen."),
    (r"\.feed_forward\.w_2\.", ".narrow."),
    (r"^decoder\.estimator\.", "estimator."),
    (r"\.time_mlp\.linear_1\.", ".time_in."),
    (r"\.time_mlp\.linear_2\.", ".time_out."),
    (r"\.time_embed_mixer\.", ".time_mixer."),
    (r"\.(down|up)_blocks\.0\.2\.", r".\1_conv.window."),
    (r"\.(down|up)_blocks\.0\.", r".\1."),
    (r"\.mid_blocks\.(\d+)\.", r".mid.\1."),
    (r"^(estimator\.(?:down|up|mid\.\d+))\.0\.", r"\1.resnet."),
    (r"^(estimator\.(?:down|up|mid\.\d+))\.1\.", r"\1.blocks."),
    (r"\.resnet\.mlp\.1\.", ".resnet.time."),
    (r"\.block1\.block\.0\.", ".first.conv.window."),
    (r"\.block1\.block\.2\.", ".first.norm."),
    (r"\.block2\.block\.0\.", ".second.conv.window."),
    (r"\.block2\.block\.2\.", ".second.norm."),
    *BLOCK_RENAMES,
    (r"\.final_block\.block\.0\.", ".final.conv.window."),
    (r"\.final_block\.block\.2\.", ".final.norm."),
    (r"\.final_proj\.", ".projection."),
]


def unet_weights(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """State dict of the flow's network out of ``flow.pt``'s tensors.

    Convolution weights ``[out, in, taps]`` become matrices ``[out, taps * in]``; the three attention
    projections become one.
    """
    return fused_projections(renamed(matrices(tensors), _RENAMES))


def own_name(name: str) -> str:
    """Name here of a tensor with this published name."""
    return _renamed(name, _RENAMES)


def renamed(tensors: Mapping[str, Array], renames: Sequence[tuple[str, str]]) -> dict[str, Array]:
    """The tensors with every pattern of their names replaced, in order."""
    return {_renamed(name, renames): tensor for name, tensor in tensors.items()}


def matrices(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """The tensors with convolution weights as matrices."""
    return {name: _as_matrix(name, tensor) for name, tensor in tensors.items()}


def fused_projections(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """The tensors with each ``q``, ``k`` and ``v`` as one ``qkv``."""
    fused = dict(tensors)
    for name in tensors:
        match = re.fullmatch(r"(.*\.)q\.(weight|bias)", name)
        if match:
            parts = [fused.pop(f"{match[1]}{part}.{match[2]}") for part in "qkv"]
            fused[f"{match[1]}qkv.{match[2]}"] = np.concatenate(parts)
    return fused


def _renamed(name: str, renames: Sequence[tuple[str, str]]) -> str:
    for pattern, replacement in renames:
        name = re.sub(pattern, replacement, name)
    return name


def _as_matrix(name: str, tensor: Array) -> Array:
    if name.endswith(".weight") and tensor.ndim == 3:
        return tensor.swapaxes(1, 2).reshape(len(tensor), -1)
    return tensor


_DIT_RENAMES = [
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


def dit_weights(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """State dict of the flow's network out of ``flow.pt``'s tensors.

    The look-ahead's convolutions become matrices, the three attention projections become one, and norms come
    into float16's range.
    """
    kept = {name: tensor for name, tensor in tensors.items() if name != ANGLES}
    look_ahead = {name: tensor for name, tensor in kept.items() if name.startswith("pre_lookahead_layer.")}
    return norms_in_range(fused_projections(renamed({**kept, **matrices(look_ahead)}, _DIT_RENAMES)))


ENCODER_RENAMES = [
    (r"\bembed\.out\.0\.", "embed.linear."),
    (r"\bembed\.out\.1\.", "embed.norm."),
    (r"\bafter_norm\.", "norm."),
    (r"\bencoders\.", "layers."),
    *RELATIVE_ATTENTION_RENAMES,
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
    *BLOCK_RENAMES,
    (r"\.final_block\.block\.0\.", ".final.conv."),
    (r"\.final_block\.block\.1\.", ".final.norm."),
    (r"\.final_proj\.", ".projection."),
]


def regulated_weights(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """State of :class:`~cosyvoice_runtime.flow.torch.regulated_flow.RegulatedFlowNetwork` out of ``flow.pt``.

    Convolutions of one tap become matrices; the three attention projections become one.
    """
    encoder = {name: tensor for name, tensor in tensors.items() if name.startswith("encoder.")}
    others = {name: tensor for name, tensor in tensors.items() if name not in encoder}
    state = renamed(encoder, ENCODER_RENAMES)
    state |= renamed(others, [*OUTER_RENAMES, *_REGULATOR_RENAMES, *_ESTIMATOR_RENAMES])
    return fused_projections({name: _of_one_tap(name, tensor) for name, tensor in state.items()})


def _of_one_tap(name: str, tensor: Array) -> Array:
    """Shortcuts and the last projection of the estimator are linear layers here."""
    linear = name.startswith("estimator.") and tensor.ndim == 3 and tensor.shape[2] == 1
    return tensor.squeeze(2) if linear else tensor
