"""Utterances for decoders: that join and leave, speak to their ends, or get their text in pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import strategies as st

from cosyvoice_runtime.lm.generation import FinishReason, Generation
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder
from cosyvoice_runtime.lm.torch.network import SpeechLM

MakeDecoder = Callable[..., BatchDecoder]
Request = tuple[Prompt, SamplingOptions]
Joining = tuple[int, int, int, str, int | None]
POISON = 89
"""Text id whose embedding is nan in the fixture `poisoned`."""
TEXT = [(7 * i) % 80 + 1 for i in range(60)]


def joining(most_text: int, most_steps: int) -> st.SearchStrategy[list[Joining]]:
    """Up to six utterances that begin in the first steps.

    Args:
        most_steps: after which one that is cancelled is.
    """
    return st.lists(
        st.tuples(
            st.integers(0, 12),  # step at which it joins
            st.integers(1, most_text),  # text tokens
            st.integers(0, 20),  # prompt speech tokens
            st.sampled_from(["ras", "nucleus", "greedy"]),
            st.one_of(st.none(), st.integers(1, most_steps)),  # steps until it is cancelled
        ),
        min_size=1,
        max_size=6,
    )


def speak_joining(
    decoder: BatchDecoder, utterances: Sequence[Joining], requests: Sequence[Request], steps: int
) -> dict[int, Generation]:
    """What comes of each utterance, by its place.

    Args:
        steps: until all have joined and all that are cancelled have left.
    """
    generations: dict[int, Generation] = {}
    for now in range(steps):
        for index, (joins, *_, leaves) in enumerate(utterances):
            if now == joins:
                generations[index] = decoder.add(*requests[index])
            elif leaves is not None and now == joins + leaves:
                decoder.cancel(generations[index])
        decoder.step()
    finish(decoder)
    return generations


def finish(decoder: BatchDecoder, steps: int = 3000) -> None:
    """Within so many steps, or it goes nowhere."""
    for _ in range(steps):
        if not decoder.busy:
            return
        decoder.step()
    pytest.fail("it makes no headway")


def said(generation: Generation) -> tuple[list[int], FinishReason | None]:
    return generation.tokens, generation.finish_reason


def assert_said(generation: Generation, alone: Generation) -> None:
    """The same, or the beginning of it where it was cancelled."""
    if generation.finish_reason is FinishReason.CANCELLED:
        assert generation.tokens == alone.tokens[: len(generation.tokens)]
    else:
        assert said(generation) == said(alone)


def speak_alone(
    make: MakeDecoder, lm: SpeechLM, prompt: Prompt, options: SamplingOptions, max_len: int = 128
) -> Generation:
    """With a decoder of its own."""
    decoder = make(lm, 1, max_len)
    generation = decoder.add(prompt, options)
    finish(decoder)
    return generation


def speak_pieces(
    decoder: BatchDecoder,
    sizes: Sequence[int],
    num_speech: int,
    options: SamplingOptions,
    spoken: Sequence[int] = (),
) -> Generation:
    """A text in pieces, each when all that can be said before it is said."""
    generation = decoder.add_open(Prompt((), TEXT[:6], range(num_speech), spoken=spoken), options)
    text = list(TEXT)
    for size in sizes:
        decoder.push_text(generation, text[:size])
        text = text[size:]
        finish(decoder)
    if generation.finish_reason is None:
        decoder.end_text(generation)
    finish(decoder)
    return generation
