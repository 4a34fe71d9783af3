"""A first chunk that goes from the speech LM straight to token2wav, where one process computes both."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from cosyvoice_runtime.errors import CosyVoiceError, StageError
from cosyvoice_runtime.serving.triton.schema import TOKEN2WAV, Tensors
from cosyvoice_runtime.serving.triton.stage_calls import Beside


class ChunkAhead:
    """token2wav is asked for it together with the speech LM, before its tokens are there.

    Made in the event loop that reads the speech LM's stream, by which its waveform comes.

    Args:
        inputs: of token2wav, without the tokens.
        utterance_id: whose first tokens they are, by the name of the speech LM's request.

    Attributes:
        answer: token2wav's.
        given_up: nobody waits for it any more, though it may still come.
    """

    def __init__(self, inputs: Mapping[str, Any], utterance_id: str) -> None:
        self.given_up = False
        self.answer: asyncio.Future[Tensors] = asyncio.get_running_loop().create_future()
        self.answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # it may be nobody's
        self.request = Beside(TOKEN2WAV, {**inputs, "tokens_of": utterance_id}, self._take)

    def give_up(self, error: CosyVoiceError) -> bool:
        """Wait no longer; False, and without effect, if it has been answered."""
        if self.answer.done():
            return False
        self.given_up = True
        self.answer.set_exception(error)
        return True

    def _take(self, outcome: Tensors | StageError) -> None:
        if self.answer.done():
            return
        if isinstance(outcome, StageError):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)
