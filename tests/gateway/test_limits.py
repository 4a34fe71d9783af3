"""How much of clients' requests may wait in the server's memory."""

from __future__ import annotations

import pytest

from cosyvoice_runtime.gateway.limits import FREE_OF_CHARGE, PendingBytes
from cosyvoice_runtime.gateway.policy import RefusedError


def test_one_large_request_gets_through_and_a_second_one_when_it_has_gone():
    pending = PendingBytes(2 * FREE_OF_CHARGE)
    taken = pending.take(3 * FREE_OF_CHARGE)  # by itself, whatever its size
    with pytest.raises(RefusedError, match="try again in 2 s"):
        pending.take(FREE_OF_CHARGE + 1)
    assert pending.take(FREE_OF_CHARGE) == 0  # a text always does
    pending.give_back(taken)
    assert pending.take(FREE_OF_CHARGE + 1) == FREE_OF_CHARGE + 1
