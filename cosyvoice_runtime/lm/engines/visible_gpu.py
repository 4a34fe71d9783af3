"""Which GPU this process may touch."""

from __future__ import annotations

import os

import torch

from cosyvoice_runtime.errors import InvalidInput

VARIABLE = "CUDA_VISIBLE_DEVICES"


def see_only(device: str, engine: str) -> None:
    """Hide every GPU but the one that ``device`` names (``cuda`` or ``cuda:N``) from this process.

    TensorRT-LLM opens the first GPU it sees when it is imported, before an executor can be told another one,
    and vLLM takes the first for the one worker of its engine: so this has to come first. The GPU is number 0
    from then on.

    Args:
        engine: that asks.

    Raises:
        InvalidInput: it is no GPU, or hidden already, or CUDA is in use here and sees others as well.
    """
    kind, _, number = device.partition(":")
    if kind != "cuda":
        raise InvalidInput("tensorrt_llm.device", device, f"engine {engine} needs cuda or cuda:N")
    index, listed = int(number or 0), os.environ.get(VARIABLE)
    names = [str(place) for place in range(index + 1)] if listed is None else listed.split(",")
    if index >= len(names):
        raise InvalidInput("tensorrt_llm.device", device, f"{VARIABLE} is {listed}")
    if index and torch.cuda.is_initialized():
        raise InvalidInput("tensorrt_llm.device", device, "CUDA is in use in this process already")
    os.environ[VARIABLE] = names[index]
