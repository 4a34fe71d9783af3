"""The families of checkpoints, each described once; docs/decisions.md says what a new one takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.families.cosyvoice2 import COSYVOICE2
from cosyvoice_runtime.families.cosyvoice3 import COSYVOICE3
from cosyvoice_runtime.families.cosyvoice300m import COSYVOICE_300M
from cosyvoice_runtime.families.family import Family, FlowParts, Place, SpeechLmParts, VocoderParts, load

if TYPE_CHECKING:
    from cosyvoice_runtime.checkpoint.config import VocoderConfig
    from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig

FAMILIES = [COSYVOICE2, COSYVOICE3, COSYVOICE_300M]
DEFAULT = COSYVOICE2
"""The family where no file tells another."""

_P = TypeVar("_P")


def speech_lm_parts(config: SpeechLMConfig) -> SpeechLmParts:
    """Parts of the speech LM that has such a configuration."""
    return _found(config, lambda family: (family.speech_lm.config, family.speech_lm))


def flow_parts(estimator: object) -> FlowParts:
    """Parts of the flow whose estimator has such a configuration."""
    return _found(estimator, lambda family: (family.flow.estimator_config, family.flow))


def vocoder_parts(config: VocoderConfig) -> VocoderParts:
    """Parts of the vocoder that has such a configuration."""
    return _found(config, lambda family: (family.vocoder.config, family.vocoder))


def load_for(place: Place | None, config: object, what: str) -> Any:
    """Load the code for a configuration; a CheckpointError names ``what`` its family lacks."""
    if place is None:
        raise CheckpointError(f"{type(config).__name__} has no {what}")
    return load(place)


def _found(config: object, parts_of: Callable[[Family], tuple[str, _P]]) -> _P:
    place = f"{type(config).__module__}:{type(config).__qualname__}"
    for family in FAMILIES:
        configured, parts = parts_of(family)
        if configured == place:
            return parts
    raise CheckpointError(f"no family has a network with a {type(config).__name__}")


__all__ = [
    "COSYVOICE2",
    "COSYVOICE3",
    "COSYVOICE_300M",
    "DEFAULT",
    "FAMILIES",
    "Family",
    "flow_parts",
    "load",
    "load_for",
    "speech_lm_parts",
    "vocoder_parts",
]
