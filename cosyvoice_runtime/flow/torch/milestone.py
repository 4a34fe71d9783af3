"""A point in a GPU's work that other streams, or the host, have to wait for."""

from __future__ import annotations

import torch


class Milestone:
    """The work that the current stream of a device has been given until now. Asked no more once it is done.

    Used by one thread at a time.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._event: torch.cuda.Event | None = torch.cuda.current_stream(device).record_event()

    def before_next(self) -> None:
        """The current stream's next work comes after it."""
        if self._event is None:
            return
        if self._event.query():
            self._event = None
        else:
            torch.cuda.current_stream(self._device).wait_event(self._event)

    def wait(self) -> None:
        """Until it is done."""
        if self._event is not None:
            self._event.synchronize()
            self._event = None
