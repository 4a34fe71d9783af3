"""The length of a text in tokens where no tokenizer is at hand."""

from __future__ import annotations

CHARACTERS_PER_TOKEN = 4
"""Characters of English text for each token, about."""


class EstimatedTokens:
    """A counter of tokens without a tokenizer, for texts that are read without a checkpoint."""

    def count(self, text: str) -> int:
        """The tokens that a text of this length has, about."""
        return -(-len(text) // CHARACTERS_PER_TOKEN)
