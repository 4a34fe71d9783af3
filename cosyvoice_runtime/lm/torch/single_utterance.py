"""Speech tokens of a single utterance."""

from __future__ import annotations

from collections.abc import Generator

from cosyvoice_runtime.lm.generation import FinishReason, TokenLimits
from cosyvoice_runtime.lm.prompt import Prompt, num_positions
from cosyvoice_runtime.lm.running_batch import DEFAULT_OPTIONS
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder
from cosyvoice_runtime.lm.torch.speech_decoder import SpeechDecoder


def generate(
    lm: SpeechDecoder, prompt: Prompt, options: SamplingOptions = DEFAULT_OPTIONS
) -> Generator[int, None, FinishReason]:
    """Yield the speech tokens of one utterance as they are drawn.

    The generator's return value is the finish reason (``reason = yield from generate(...)``).

    Raises:
        InvalidInput: the prompt holds an id outside its table.
        CosyVoiceError: decoding failed.
    """
    most = TokenLimits.of(options, len(prompt.text)).max_tokens
    decoder = BatchDecoder(lm, slots=1, max_len=num_positions(prompt.parts()) + most)
    generation = decoder.add(prompt, options)
    while generation.finish_reason is None:
        for _, token, _ in decoder.step():
            if token is not None:
                yield token
    if generation.error is not None:
        raise generation.error
    return generation.finish_reason


def generate_all(
    lm: SpeechDecoder, prompt: Prompt, options: SamplingOptions = DEFAULT_OPTIONS
) -> tuple[list[int], FinishReason]:
    """The speech tokens of one utterance and why they ended; raises as :func:`generate`."""
    tokens: list[int] = []
    drawn = generate(lm, prompt, options)
    while True:
        try:
            tokens.append(next(drawn))
        except StopIteration as end:
            return tokens, end.value
