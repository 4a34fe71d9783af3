"""The file ``flow_schedule.json`` beside a distilled flow: times of its steps, guidance, and its kind."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any, NamedTuple

from cosyvoice_runtime.checkpoint.config_flow import EstimatorConfig, FlowConfig
from cosyvoice_runtime.checkpoint.json_file import read_json
from cosyvoice_runtime.checkpoint.layout import FLOW_SCHEDULE, Layout
from cosyvoice_runtime.errors import CheckpointError, shorten

TIMES, GUIDANCE, MEANFLOW = "times", "guidance", "meanflow"
MOST_STEPS = 100
LEAST_STEP = 1e-4
"""Smaller steps are lost in float32, and no flow is trained for them."""
MOST_GUIDANCE = 10
"""Far above the published 0.7."""


class FlowSchedule(NamedTuple):
    """Content of the file.

    Attributes:
        times: of the evaluations, in [0, 1), ascending from 0; none leave them to the settings.
        guidance: rate of classifier-free guidance, 0 for none; None leaves it to the configuration file.
        meanflow: the network gives the mean velocity of a step, as IntMeanFlow does (arXiv 2510.07979).
    """

    times: tuple[float, ...] = ()
    guidance: float | None = None
    meanflow: bool = False

    @classmethod
    def of(cls, layout: Layout) -> FlowSchedule:
        """That of a checkpoint; an empty one without the file.

        Raises:
            CheckpointError: the file is damaged, or has a key or a value that is not accepted.
        """
        path = layout.flow_schedule
        if path is None:
            return cls()
        content = read_json(path)
        try:
            _require("keys", sorted(content), bool(content) and content.keys() <= {TIMES, GUIDANCE, MEANFLOW})
            times = content.get(TIMES, [])
            if TIMES in content:
                _require(TIMES, times, _are_times(times))
            guidance = content.get(GUIDANCE)
            if GUIDANCE in content:
                _require(GUIDANCE, guidance, _is_rate(guidance))
            meanflow = content.get(MEANFLOW, False)
            _require(MEANFLOW, meanflow, isinstance(meanflow, bool))
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from error
        return cls(tuple(map(float, times)), None if guidance is None else float(guidance), meanflow)

    def applied(self, flow: FlowConfig) -> FlowConfig:
        """The flow's configuration with all this.

        Raises:
            CheckpointError: mean velocities of an estimator other than CosyVoice2's.
        """
        estimator = flow.estimator
        if self.meanflow:
            if not isinstance(estimator, EstimatorConfig):
                limit = (
                    f"false with a {type(estimator).__name__}: CosyVoice2's flow alone has mean velocities"
                )
                raise CheckpointError(f"{FLOW_SCHEDULE}: {MEANFLOW} is true; expected {limit}")
            estimator = dataclasses.replace(estimator, meanflow=True)
        rate = flow.cfg_rate if self.guidance is None else self.guidance
        return dataclasses.replace(flow, times=self.times, cfg_rate=rate, estimator=estimator)


ACCEPTED = {
    "keys": f"some of {TIMES}, {GUIDANCE} and {MEANFLOW}",
    TIMES: f"1 to {MOST_STEPS} numbers from 0 on, each at least {LEAST_STEP} above the one before, "
    "the last as far below 1",
    MEANFLOW: "true or false",
    GUIDANCE: f"a number from 0, which is none, to {MOST_GUIDANCE}",
}
"""Words for what the file may hold."""


def _require(field: str, value: object, holds: bool) -> None:
    if not holds:
        raise CheckpointError(f"{field} is {shorten(value)}; expected {ACCEPTED[field]}")


def _are_times(value: Any) -> bool:
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_STEPS or not all(map(_is_number, value)):
        return False
    steps = [following - time for time, following in pairwise([*value, 1])]
    return bool(value[0] == 0) and min(steps) >= LEAST_STEP


def _is_rate(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= MOST_GUIDANCE


def _is_number(value: object) -> bool:
    return type(value) in (int, float)
