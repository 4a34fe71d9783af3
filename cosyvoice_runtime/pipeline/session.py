"""One utterance from its first speech token to its last sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

from torch import Tensor

from cosyvoice_runtime.pipeline.schedule import Portions
from cosyvoice_runtime.pipeline.token2wav import Synthesis


class Session:
    """Tokens in, waveform chunks out. A ``with`` block frees the utterance on every path."""

    def __init__(self, synthesis: Synthesis, state: Any, portions: Portions) -> None:
        self._synthesis = synthesis
        self._state = state
        self._portions = portions

    def chunks(self, tokens: Iterable[int]) -> Iterator[Tensor]:
        """Waveform chunks, float32 ``[n]``, each as soon as its tokens are there.

        The last one comes after the tokens have ended and is empty if nothing was left to say.
        """
        for token in tokens:
            portion = self._portions.push(token)
            if portion is not None:
                yield self._advance(portion)
        yield self._advance(self._portions.finish(), last=True)

    def _advance(self, tokens: list[int], last: bool = False) -> Tensor:
        self._synthesis.push(self._state, tokens, last)
        [samples] = self._synthesis.advance([self._state])
        return samples

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._synthesis.close(self._state)
