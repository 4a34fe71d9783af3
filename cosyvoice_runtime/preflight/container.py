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
        driver: the image's own, with all of this CUDA. Older ones of the same CUDA 13 or 12 run it too, by
            NVIDIA's minor version compatibility.
        libraries: versions of its modules, by name; a build's own label after ``+`` doesn't count.
    """

    image: str
    python: Version
    cuda: Version
    driver: Version
    libraries: Mapping[str, str]


def dotted(version: Version) -> str:
    return ".".join(map(str, version))
