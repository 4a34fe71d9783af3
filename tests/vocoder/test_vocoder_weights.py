import pytest
import torch
from torch.nn.utils.parametrizations import weight_norm

from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.vocoder.weights import DIRECTION, GAIN, plain_weights
from small_hift import PUBLISHED, published_tensors


@pytest.mark.parametrize(
    ("layer", "module"),
    [("conv_pre", torch.nn.Conv1d(80, 16, 7)), ("ups.0", torch.nn.ConvTranspose1d(16, 8, 16))],
)
def test_fold_equals_torch_weight_norm(layer: str, module: torch.nn.Module) -> None:
    tensors = published_tensors(PUBLISHED)
    normed = weight_norm(module)
    normed.load_state_dict(
        {
            "bias": tensors[f"{layer}.bias"],
            GAIN[1:]: tensors[layer + GAIN],
            DIRECTION[1:]: tensors[layer + DIRECTION],
        }
    )
    folded = plain_weights(PUBLISHED, tensors)[f"decoder.{layer}.weight"]
    torch.testing.assert_close(torch.from_numpy(folded), normed.weight.detach())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"conv_post.bias": None}, "conv_post.bias is missing"),
        ({"conv_post.bias": torch.zeros(3)}, r"conv_post.bias has shape \(3,\)"),
        ({"ups.7.bias": torch.zeros(3)}, "ups.7.bias is unknown"),
    ],
)
def test_wrong_tensor_is_named(change: dict[str, torch.Tensor | None], message: str) -> None:
    tensors = {**published_tensors(PUBLISHED), **change}
    tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    with pytest.raises(CheckpointError, match=message):
        plain_weights(PUBLISHED, tensors)
