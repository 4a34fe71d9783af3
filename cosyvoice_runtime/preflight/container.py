"""What an engine's container brings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Version = tuple[int, int]


@dataclass(frozen=True)
class Container:
    """A pinned image of NVIDIA's.

    Attributes:
        image: its name and tag.
        python: version of its interpreter.
        cuda: version of its CUDA.
        driver: oldest driver that runs this CUDA without NVIDIA's compatibility package.
        libraries: versions of its modules, by name; a build's own label after ``+`` doesn't count.
        older: what to do with an older driver, beside updating it; empty for nothing.
    """

    image: str
    python: Version
    cuda: Version
    driver: Version
    libraries: Mapping[str, str]
    older: str = ""


def dotted(version: Version) -> str:
    return ".".join(map(str, version))
