"""The networks with random weights that benchmarks make."""

from __future__ import annotations

from argparse import ArgumentParser

from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.families import COSYVOICE2, COSYVOICE3
from making import architecture, architecture_cosyvoice3

FAMILIES: dict[str, dict[str, ModelConfig]] = {
    COSYVOICE2.name: {"tiny": architecture.TINY, "full": architecture.FULL},
    COSYVOICE3.name: {"tiny": architecture_cosyvoice3.TINY, "full": architecture_cosyvoice3.FULL},
}
SIZES = FAMILIES[COSYVOICE2.name]


def add_network(parser: ArgumentParser, size: str = "full") -> None:
    """``--family`` and ``--size``, for :data:`FAMILIES`."""
    parser.add_argument("--family", choices=FAMILIES, default=COSYVOICE2.name, help="(default %(default)s)")
    parser.add_argument("--size", choices=SIZES, default=size, help="(default %(default)s)")
