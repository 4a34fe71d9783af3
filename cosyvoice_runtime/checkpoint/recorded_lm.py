"""Sizes of the speech LM as other programs' files record them: by the name of their class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.families import FAMILIES, load

KIND = "kind"


def recorded(config: SpeechLMConfig) -> dict[str, Any]:
    """What :func:`read_recorded` reads back, as JSON holds it."""
    return {KIND: type(config).__name__, **asdict(config)}


def read_recorded(record: Mapping[str, Any]) -> SpeechLMConfig:
    """
    Raises:
        CheckpointError: it is no record of :func:`recorded`.
    """
    try:
        sizes = {key: value for key, value in record.items() if key != KIND}
        kind = _backed_by_qwen2()[record[KIND]]
        return kind(**{**sizes, "mix_ratio": tuple(sizes["mix_ratio"])})
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"no sizes of a speech LM are recorded: {error!r}") from error


def _backed_by_qwen2() -> dict[str, type[SpeechLMConfig]]:
    """Classes of configurations of speech LMs that have a Qwen2 as their backbone, by name."""
    kinds = [load(family.speech_lm.config) for family in FAMILIES if family.has_qwen2]
    return {kind.__name__: kind for kind in kinds}
