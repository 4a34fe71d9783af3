"""Voices and tokens as a flow takes them, checked, and the interface of any flow to its callers."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.flow.page_store import Tails

MAX_FRAMES = 15_000
"""Frames of start noise: 300 s at 50 Hz, prompt included."""
MAX_PROMPT_S = 30
"""Longest reference (CosyVoice's front end refuses longer ones): a prompt is computed and kept as a whole."""

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class FlowPrompt:
    """The part of a voice that the flow needs.

    Attributes:
        tokens: int64 ``[P]`` speech tokens of the reference; P may be 0.
        mel: float32 ``[frames_per_token * P, mel]`` log-mel of the reference.
        speaker: float32 ``[D]`` speaker embedding, not normalised.
    """

    tokens: Ids
    mel: Floats
    speaker: Floats


@dataclass(frozen=True, eq=False)
class TokenSpan:
    """A stretch of one utterance to turn into mel.

    Attributes:
        start: tokens of the utterance, prompt included, before the stretch.
        count: tokens to turn into mel.
        tokens: int64, those tokens and, unless the utterance ends with them, the look-ahead after them.
    """

    prompt: FlowPrompt
    start: int
    count: int
    tokens: Ids

    def first(self, most: int, lookahead: int) -> TokenSpan:
        """Its first ``most`` tokens, which the rest may follow: attention is block-causal."""
        if self.count <= most:
            return self
        return dataclasses.replace(self, count=most, tokens=self.tokens[: most + lookahead])


class FlowInputs:
    """Inputs of a flow, whatever it runs on.

    Attributes:
        max_frames: of one utterance, prompt included; engines may be built for fewer.
        lookahead_tokens: tokens after a block that have to be known.
    """

    def __init__(self, config: FlowConfig, max_frames: int = MAX_FRAMES) -> None:
        self.config = config
        self.max_frames = max_frames
        self.lookahead_tokens = config.lookahead_tokens

    def check_tokens(self, tokens: Sequence[int], tokens_before: int) -> Ids:
        """Speech tokens as int64; an InvalidInput for one out of range, or for more than 300 s."""
        config = self.config
        limit = self.max_frames // config.frames_per_token
        if tokens_before + len(tokens) > limit:
            raise InvalidInput(
                "speech_tokens",
                tokens_before + len(tokens),
                f"an utterance has at most {limit} tokens ({limit // config.token_rate} s), prompt included",
            )
        ids = self._known(tokens)
        if ids is None:
            for token in tokens:
                self._check_token(token)
            ids = np.array(tokens, np.int64)
        return ids

    def _known(self, tokens: Sequence[int]) -> Ids | None:
        """The tokens if all are in the vocabulary, found at a glance: each row of a batch asks."""
        try:
            ids = np.array(tokens)
        except ValueError:  # sequences of unequal lengths
            return None
        whole = ids.dtype.kind in "iu" and ids.ndim == 1
        known = whole and ids.min() >= 0 and ids.max() < self.config.token_vocab_size
        return ids.astype(np.int64, copy=False) if known else None

    def _check_token(self, token: int) -> None:
        if not isinstance(token, Integral):
            raise InvalidInput("speech_tokens", token, "tokens are integers")
        if not 0 <= token < self.config.token_vocab_size:
            limit = f"tokens are 0 to {self.config.token_vocab_size - 1}"
            raise InvalidInput("speech_tokens", token, limit)

    @property
    def most_prompt_tokens(self) -> int:
        """Speech tokens of the longest prompt."""
        return MAX_PROMPT_S * self.config.token_rate

    def check_prompt(self, prompt: FlowPrompt) -> FlowPrompt:
        """The prompt itself, after checking that its parts fit each other and this checkpoint.

        Raises:
            InvalidInput: it is longer than 30 s, a part has another shape, or a token is out of range.
        """
        limit = self.most_prompt_tokens
        if len(prompt.tokens) > limit:
            raise InvalidInput(
                "speech_tokens", len(prompt.tokens), f"a prompt has at most {limit} tokens ({MAX_PROMPT_S} s)"
            )
        self._check_mel(prompt)
        _check_shape("speaker_embedding", prompt.speaker, (self.config.speaker_dim,))
        self.check_tokens(prompt.tokens.tolist(), 0)
        return prompt

    def _check_mel(self, prompt: FlowPrompt) -> None:
        """Raise InvalidInput for a mel that does not fit the prompt's tokens."""
        config = self.config
        shape = (config.frames_per_token * len(prompt.tokens), config.mel_bins)
        _check_shape("prompt_mel", prompt.mel, shape)

    def prompt_frames(self, span: TokenSpan, frames: int) -> Floats:
        """The prompt's mel of the span's first n ``frames``: float32 ``[n, mel]``; n may be 0."""
        start = self.config.frames_per_token * span.start
        return span.prompt.mel[start : start + frames]


def _check_shape(name: str, array: Floats, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise InvalidInput(name, tuple(array.shape), f"its shape must be {shape}")


@dataclass(frozen=True, eq=False)
class FlowPrefix:
    """The flow's state of a voice alone, held for every utterance that uses it.

    Attributes:
        ready: where it is computed by a GPU: tells when that has been done.
    """

    prompt: FlowPrompt
    pages: list[int]
    tails: Tails
    tokens_done: int
    ready: Any = None


class VoiceFlow(ABC):
    """The flow of many utterances.

    Attributes:
        flow: what the networks take.
        recomputing: utterances so far that ran out of pages.
        calls: of the network so far.
        fused: whether captured calls take the solver's steps in fused kernels.
    """

    fused = False

    def __init__(self, flow: FlowInputs) -> None:
        self.flow = flow
        self.recomputing = self.calls = 0

    @property
    def num_pages(self) -> int:
        """Blocks of finished work that may be kept; 0 for a flow that keeps none."""
        return 0

    @property
    def free_pages(self) -> int:
        return 0

    def when_short(self, makes_room: Callable[[int], bool]) -> None:  # noqa: B027 - a flow may have no pages
        """Take a function to call when fewer pages are free than a call needs.

        Args:
            makes_room: called from any thread with the number of pages; says whether they are free then.
        """

    @property
    def eager_calls(self) -> int:
        """Calls so far that no captured graph held, where there are graphs."""
        return 0

    def forget_counts(self) -> None:
        """Count from zero again."""
        self.recomputing = self.calls = 0

    @abstractmethod
    def prefix(self, prompt: FlowPrompt) -> FlowPrefix:
        """State that can be computed from a voice alone. Pair with :meth:`close`."""

    @abstractmethod
    def close(self, held: Any) -> None:
        """Give back the pages of an utterance or of a voice; harmless when repeated."""

    def prefix_pages(self, prompt_tokens: int) -> int:  # noqa: ARG002
        """Pages that :meth:`prefix` takes of a prompt of so many tokens."""
        return 0
