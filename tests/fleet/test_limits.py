"""Limits of a key over two fronts, whatever happens to one of them and to Redis."""

from __future__ import annotations

import pytest

from drills import limits


@pytest.mark.parametrize("drill", [limits.three_a_minute, limits.two_streams, limits.redis_away])
def test_limits_of_a_key_hold_for_all_fronts(fleet, tmp_path, drill):
    assert drill(fleet, tmp_path).faults == []
