"""What the numbers in a model's answer must not be, whatever was asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from tritonclient.utils import triton_to_np_dtype

from cosyvoice_runtime.arrays import Floats

WAVEFORM = "waveform"
LOUD = 0.9, 1.0
"""Between which the peak of samples lies that were clipped."""
CLIPPED = 0.5
"""Share of samples at the peak from which nothing of the speech is left."""
REMEDY = "./run.sh check compares every stage with float32; server.probe_numbers=false starts all the same"


def fault(responses: Iterable[Any]) -> str | None:
    """What is wrong with the numbers of ``ModelInferResponse``, all to one request; None when nothing is."""
    for name, values in _floats(responses).items():
        if not np.isfinite(values).all():
            return f"NaN or infinity in {name}; {REMEDY}"
        if name == WAVEFORM and values.size and not values.any():
            return f"all samples of {name} are 0: the flow or the vocoder gives no sound; {REMEDY}"
        if name == WAVEFORM and _is_clipped(values):
            return f"most samples of {name} are clipped: the flow or the vocoder is far too loud; {REMEDY}"
    return None


def _is_clipped(samples: Floats) -> bool:
    levels = np.abs(samples)
    peak = levels.max(initial=0.0)
    return bool(LOUD[0] <= peak <= LOUD[1] and (levels >= 0.999 * peak).mean() > CLIPPED)


def _floats(responses: Iterable[Any]) -> dict[str, Floats]:
    """Outputs of floats by name, those of several responses one after another."""
    parts: dict[str, list[Floats]] = {}
    for response in responses:
        for output, content in zip(response.outputs, response.raw_output_contents, strict=False):
            dtype = triton_to_np_dtype(output.datatype)
            if dtype is not None and np.issubdtype(dtype, np.floating):
                parts.setdefault(output.name, []).append(np.frombuffer(content, dtype))
    return {name: np.concatenate(found) for name, found in parts.items()}
