"""What the numbers of one metric mean."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
"""Names that Prometheus takes for metrics and for labels."""

Kind = Literal["gauge", "counter", "histogram"]


@dataclass(frozen=True)
class Series:
    """
    Attributes:
        bounds: of a histogram, the greatest value in each bucket but the last, which has no bound.

    Raises:
        ValueError: a name that Prometheus does not take, or bounds that do not rise.
    """

    name: str
    kind: Kind
    description: str
    labels: tuple[tuple[str, str], ...] = ()
    bounds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in (self.name, *(label for label, _ in self.labels)):
            if not NAME.fullmatch(name):
                raise ValueError(f"{name!r} can't be the name of a metric or label")
        if not all(low < high for low, high in pairwise((*self.bounds, math.inf))):
            raise ValueError(f"{self.name}: bounds {self.bounds} are not finite and rising")

    @property
    def size(self) -> int:
        """How many numbers it has: one, but a histogram the sum of its values and a count per bucket."""
        return len(self.bounds) + 2 if self.kind == "histogram" else 1
