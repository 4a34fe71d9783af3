"""The part of a voice that the flow continues from."""

from __future__ import annotations

import dataclasses

import numpy as np

from cosyvoice_runtime.flow.voice_flow import FlowPrompt
from cosyvoice_runtime.voice.digest import content_hash
from cosyvoice_runtime.voice.voice import FLOW_FRAMES_PER_TOKEN, Voice


def cut_prompt(voice: Voice, chunk_tokens: int, first_hop: int) -> Voice:
    """The voice with its prompt cut at the start for an early first block, under a key of its own.

    The flow works in blocks counted from the prompt's start, so the first audible block waits for the
    tokens that the prompt leaves free in its last block, and for the look-ahead.

    Args:
        chunk_tokens: tokens of one block, of which at most all but one are cut.
        first_hop: new tokens of the first block, at least 1. Prompts no longer than the cut are kept whole;
            slightly longer ones become very short.
    """
    count = voice.speech_tokens.shape[0]
    cut = (count + first_hop) % chunk_tokens
    if cut == 0 or cut >= count:
        return voice
    return dataclasses.replace(
        voice,
        key=content_hash(voice.key, cut),
        speech_tokens=voice.speech_tokens[cut:],
        prompt_mel=voice.prompt_mel[FLOW_FRAMES_PER_TOKEN * cut :],
    )


def flow_prompt(voice: Voice) -> FlowPrompt:
    """What the flow needs of a voice."""
    return FlowPrompt(
        tokens=np.asarray(voice.speech_tokens, np.int64),
        mel=np.asarray(voice.prompt_mel),
        speaker=np.asarray(voice.speaker_embedding),
    )
