"""Utterances that arrive piece by piece, against the same ones at once."""

from __future__ import annotations

import itertools

import torch
from hypothesis import strategies as st

from cosyvoice_runtime.flow.paged_flow import Mel, PagedFlow
from cosyvoice_runtime.flow.torch.stream import FlowStream
from cosyvoice_runtime.flow.voice_flow import FlowPrompt
from small_flow import random_prompt, random_tokens

lengths = st.tuples(st.integers(0, 80), st.integers(1, 90))
UTTERANCES = st.lists(st.tuples(lengths, st.lists(st.integers(1, 90), max_size=4)), min_size=1, max_size=4)
"""Tokens of prompt and speech, and where the speech is cut into pieces."""


def pieces_of(tokens: list[int], cuts: list[int]) -> list[list[int]]:
    """Tokens cut at the given places; the last piece ends the utterance."""
    edges = [0, *sorted({min(cut, len(tokens)) for cut in cuts}), len(tokens)]
    return [tokens[a:b] for a, b in itertools.pairwise(edges)]


def spoken(stream: PagedFlow, prompts: list[FlowPrompt], queues: list[list[list[int]]]) -> list[Mel]:
    """Mels of utterances that are pushed piece by piece, side by side; nothing of them is left."""
    free = stream.pool.free_pages
    states = [stream.open(prompt) for prompt in prompts]
    mels: list[list[Mel]] = [[] for _ in states]
    while any(queues):
        active = [row for row, queue in enumerate(queues) if queue]
        for row in active:
            piece = queues[row].pop(0)
            states[row].push(piece, last=not queues[row])
        for row, mel in zip(active, stream.advance([states[row] for row in active]), strict=True):
            mels[row].append(mel)
    for state in states:
        stream.close(state)
    assert stream.pool.free_pages == free
    return [stream.joined(mel) for mel in mels]


def check_captured(stream: FlowStream, prompt: FlowPrompt, tokens: list[int]) -> None:
    """Speak an utterance after its prompt, all of it by captured calls; it has to equal the whole one."""
    state = stream.open(prompt)
    stream.advance([state])
    state.push(tokens, last=True)
    [mel] = stream.advance([state])
    assert stream.eager.count == 0
    [whole] = stream.flow.generate([prompt], [tokens])
    torch.testing.assert_close(mel, whole, atol=1e-4, rtol=1e-4)


def check_streams(
    stream: FlowStream, utterances: list[tuple[tuple[int, int], list[int]]], tolerance: float
) -> None:
    """Speak them side by side; nothing of them may be left."""
    prompts = [random_prompt(prompt, seed) for seed, ((prompt, _), _) in enumerate(utterances)]
    tokens = [random_tokens(length, seed) for seed, ((_, length), _) in enumerate(utterances)]
    queues = [pieces_of(row, cuts) for row, (_, cuts) in zip(tokens, utterances, strict=True)]
    mels = spoken(stream, prompts, queues)
    for prompt, row, mel in zip(prompts, tokens, mels, strict=True):
        [whole] = stream.flow.generate([prompt], [row])
        torch.testing.assert_close(mel, whole, atol=tolerance, rtol=0)
