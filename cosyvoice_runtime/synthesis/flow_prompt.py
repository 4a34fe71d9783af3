"""The part of a voice that the flow continues from."""

from __future__ import annotations

from cosyvoice_runtime.flow.flow import FlowPrompt
from cosyvoice_runtime.voice.voice import FRAMES_PER_TOKEN, Voice


def flow_prompt(voice: Voice, chunk_tokens: int, first_hop: int | None = None) -> FlowPrompt:
    """The flow's prompt of a voice, optionally cut at its start for an early first block.

    The flow works in blocks counted from the prompt's start, so the first audible block waits for the
    tokens that the prompt leaves free in its last block, and for the look-ahead.

    Args:
        chunk_tokens: tokens of one block.
        first_hop: new tokens of the first block, 1 to ``chunk_tokens``; at most ``chunk_tokens - 1``
            prompt tokens are cut for it. None, or a prompt shorter than the cut, leaves the prompt whole.
    """
    count = voice.speech_tokens.shape[0]
    cut = 0 if first_hop is None else (count + first_hop) % chunk_tokens
    if cut >= count:
        cut = 0
    return FlowPrompt(
        tokens=voice.speech_tokens[cut:].long(),
        mel=voice.prompt_mel[FRAMES_PER_TOKEN * cut :],
        speaker=voice.speaker_embedding,
    )
