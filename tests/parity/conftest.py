"""Largest difference of every parity case, printed as a table after the run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from goldens import Compare

from cosyvoice_runtime.arrays import Array

PROPERTY = "largest difference"
"""Of a test's report: name of what was compared, difference, tolerance."""


@pytest.fixture
def compare(request: pytest.FixtureRequest) -> Iterator[Compare]:
    """``compare(name, actual, expected, tolerance)``: same shape, values within the tolerance."""

    def compare(name: str, actual: torch.Tensor | Array, expected: torch.Tensor, tolerance: float) -> None:
        actual = torch.as_tensor(actual)
        assert actual.shape == expected.shape, (
            f"{name}: shape {tuple(actual.shape)} != {tuple(expected.shape)}"
        )
        difference = 0.0
        if expected.numel():
            difference = (actual.double() - expected.double()).abs().max().item()
        request.node.user_properties.append((PROPERTY, (request.node.name, name, difference, tolerance)))
        assert difference <= tolerance, f"{name}: largest difference {difference:.3g} > {tolerance:.3g}"

    return compare


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    compared = [value for report in reports for key, value in report.user_properties if key == PROPERTY]
    if not compared:
        return
    terminalreporter.section("largest difference per parity case")
    width = max(len(f"{test} {name}") for test, name, _, _ in compared)
    for test, name, difference, tolerance in compared:
        label = f"{test} {name}"
        terminalreporter.write_line(f"{label:<{width}}  {difference:9.2e}  (tolerance {tolerance:.0e})")
