"""A new family is registered in one place: it is recognised, made small, checked, and speaks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cosyvoice_runtime.checkpoint import Layout, load_config, verify_checkpoint
from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.families import FAMILIES
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.local import SpeechRequest, Synthesizer
from fourth_family import STAND_IN, LouderVocoderConfig
from making import make_checkpoint


@pytest.fixture
def fourth(tmp_path: Path) -> Iterator[Path]:
    FAMILIES.append(STAND_IN)
    try:
        yield make_checkpoint(tmp_path / "fourth", family="cosyvoice_stand_in")
    finally:
        FAMILIES.remove(STAND_IN)


def test_fourth_family_is_recognised_checked_and_speaks(fourth: Path, tiny_checkpoint: Path) -> None:
    assert Layout(fourth).family is STAND_IN
    assert Layout(fourth).missing() == []
    assert verify_checkpoint(fourth) == []
    assert type(load_config(fourth).vocoder) is LouderVocoderConfig
    synthesizer = Synthesizer.from_checkpoint(fourth)
    own, other = (spoken(each) for each in (synthesizer, Synthesizer.from_checkpoint(tiny_checkpoint)))
    assert own.shape == other.shape
    assert np.abs(own).max() > 0
    assert np.abs(own - other).max() > 0.001


def spoken(synthesizer: Synthesizer) -> np.ndarray:
    sampling = SamplingOptions(max_tokens=30)
    request = SpeechRequest("Hello.", synthesizer.speakers["default"], seed=5, sampling=sampling)
    return np.concatenate([chunk.samples for chunk in synthesizer.synthesize(request)])


def test_without_its_description_it_is_unknown(fourth: Path) -> None:
    FAMILIES.remove(STAND_IN)
    try:
        with pytest.raises(CheckpointError, match=r"cosyvoice3\.yaml"):
            load_config(fourth)
    finally:
        FAMILIES.append(STAND_IN)
