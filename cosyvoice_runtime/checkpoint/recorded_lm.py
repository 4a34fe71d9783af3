"""Sizes of the speech LM as other programs' files record them: by the name of their class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from cosyvoice_runtime.checkpoint.config_lm import OneTableSpeechLMConfig, SpeechLMConfig
from cosyvoice_runtime.errors import CheckpointError

KIND = "kind"
KINDS = {kind.__name__: kind for kind in (SpeechLMConfig, OneTableSpeechLMConfig)}
"""Those of which a Qwen2 is the backbone."""


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
        return KINDS[record[KIND]](**{**sizes, "mix_ratio": tuple(sizes["mix_ratio"])})
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"no sizes of a speech LM are recorded: {error!r}") from error
