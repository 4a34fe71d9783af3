"""What all tests share: the tiny checkpoint, hypothesis' profiles, the marks ``server``, ``slow``, ``gpu``.

``pytest`` tries every property on the same examples in every run. New examples come with

    OMP_NUM_THREADS=1 pytest -m "hypothesis and not server" --hypothesis-profile=fresh

which a nightly run or a developer starts, as often as there is time. A failure prints a line that reproduces
it, and its example is kept in ``.hypothesis`` and tried first from then on. An example that found a fault
goes into its test as ``@example``.

``pytest -m "not slow and not server"`` takes less than three minutes; ``pytest -m gpu tests/gpu`` needs a
GPU.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from cosyvoice_runtime.checkpoint import make_checkpoint

settings.register_profile(
    "suite", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "fresh", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a small checkpoint with random weights, laid out like the published one."""
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny", "tiny", seed=0)
