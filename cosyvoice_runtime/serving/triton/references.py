"""References of a batch of requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.audio.rates import EXTRACTOR_SAMPLE_RATE
from cosyvoice_runtime.audio.reference import reference_audio
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.serving.triton.request import Inputs


def references(requests: Sequence[Any]) -> list[Audio | Exception]:
    """The 16 kHz reference of each request, checked, or why it is none."""
    return [_reference(Inputs(request)) for request in requests]


def _reference(inputs: Inputs) -> Audio | Exception:
    try:
        samples = torch.from_numpy(np.array(inputs.required("reference_wav")))
        return reference_audio(samples, EXTRACTOR_SAMPLE_RATE, inputs.scalar("reference_wav_len"))
    except InvalidInput as error:
        return error
