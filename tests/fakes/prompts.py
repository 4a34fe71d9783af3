"""Prompts of the flow out of torch's tensors."""

from __future__ import annotations

from torch import Tensor

from cosyvoice_runtime.flow.voice_flow import FlowPrompt


def prompt_of_tensors(tokens: Tensor, mel: Tensor, speaker: Tensor) -> FlowPrompt:
    return FlowPrompt(tokens.long().numpy(), mel.float().numpy(), speaker.float().numpy())
