"""Long silence, thinned out between the speech LM and the flow."""

from __future__ import annotations

from collections.abc import Collection, Sequence

MOST_IN_A_RUN = 5
"""Silent tokens that are spoken one after another: 0.2 s (FunAudioLLM/CosyVoice ``ace7c47``)."""


class SilenceFilter:
    """Drops what an utterance has of silence beyond the first few tokens of each run.

    The speech LM's own history keeps all it drew.

    Args:
        silent: speech codes without sound; any of them continues a run.
    """

    def __init__(self, silent: Collection[int]) -> None:
        self._silent = silent
        self._run = 0

    def __call__(self, tokens: Sequence[int]) -> list[int]:
        """Tokens among the next ones that are spoken."""
        if not self._silent:
            return list(tokens)
        return [token for token in tokens if self._is_spoken(token)]

    def _is_spoken(self, token: int) -> bool:
        self._run = self._run + 1 if token in self._silent else 0
        return self._run <= MOST_IN_A_RUN
