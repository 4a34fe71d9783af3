"""Pictures of speech: teacher and product one above the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

RATE = 16_000
WINDOW, HOP = 400, 100
FLOOR_DB = -70.0


def draw(titles: Sequence[str], pairs: Sequence[tuple[Tensor, Tensor]], picture: Path) -> None:
    """A column for each sentence: the teacher above, the product below."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(pairs), figsize=(4 * len(pairs), 4.5), squeeze=False)
    for column, (title, pair) in enumerate(zip(titles, pairs, strict=True)):
        for axis, who, samples in zip(axes[:, column], ("teacher", "product"), pair, strict=True):
            extent = (0.0, len(samples) / RATE, 0.0, RATE / 2000)
            axis.imshow(_decibels(samples), origin="lower", aspect="auto", extent=extent, cmap="magma")
            axis.set_ylabel(f"{who}, kHz", fontsize=7)
            axis.tick_params(labelsize=6)
        axes[0, column].set_title(title, fontsize=7)
    figure.tight_layout()
    figure.savefig(picture, dpi=60)
    pyplot.close(figure)


def _decibels(samples: Tensor) -> Tensor:
    spectrum = torch.stft(samples, WINDOW, HOP, window=torch.hann_window(WINDOW), return_complex=True).abs()
    return (20 * (spectrum / spectrum.max()).clamp(min=1e-6).log10()).clamp(min=FLOOR_DB)
