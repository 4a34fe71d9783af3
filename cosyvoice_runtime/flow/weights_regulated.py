"""From the published names of CosyVoice-300M's ``flow.pt`` to those of the networks that run it."""

from __future__ import annotations

from collections.abc import Mapping

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.flow.weights import (
    BLOCK_RENAMES,
    OUTER_RENAMES,
    RELATIVE_ATTENTION_RENAMES,
    fused_projections,
    renamed,
)

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


def from_published(tensors: Mapping[str, Array]) -> dict[str, Array]:
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
