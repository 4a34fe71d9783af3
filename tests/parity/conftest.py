"""Largest difference of every parity case, printed as a table after the run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from goldens import Compare

DIFFERENCES: list[tuple[str, str, float, float]] = []


@pytest.fixture
def compare(request: pytest.FixtureRequest) -> Iterator[Compare]:
    """``compare(name, actual, expected, tolerance)``: same shape, values within the tolerance."""

    def compare(name: str, actual: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
        assert actual.shape == expected.shape, (
            f"{name}: shape {tuple(actual.shape)} != {tuple(expected.shape)}"
        )
        difference = 0.0
        if expected.numel():
            difference = (actual.double() - expected.double()).abs().max().item()
        DIFFERENCES.append((request.node.name, name, difference, tolerance))
        assert difference <= tolerance, f"{name}: largest difference {difference:.3g} > {tolerance:.3g}"

    return compare


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not DIFFERENCES:
        return
    terminalreporter.section("largest difference per parity case")
    width = max(len(f"{test} {name}") for test, name, _, _ in DIFFERENCES)
    for test, name, difference, tolerance in DIFFERENCES:
        label = f"{test} {name}"
        terminalreporter.write_line(f"{label:<{width}}  {difference:9.2e}  (tolerance {tolerance:.0e})")
