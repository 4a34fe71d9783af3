"""Whether the cache holds what the settings promise."""

from __future__ import annotations

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings import TensorrtLlmSettings


def check_cache_room(settings: TensorrtLlmSettings, max_positions: int) -> None:
    """For engines in which a running request never waits for cache that another one holds.

    Args:
        max_positions: that the network knows.

    Raises:
        InvalidInput: requests may be longer than that, or not all slots can hold the longest one.
    """
    if settings.max_sequence_tokens > max_positions:
        limit = f"the network has {max_positions} positions"
        raise InvalidInput("tensorrt_llm.max_sequence_tokens", settings.max_sequence_tokens, limit)
    needed = settings.max_slots * settings.max_sequence_tokens
    if settings.kv_cache_tokens < needed:
        limit = f"engine {settings.engine} needs max_slots * max_sequence_tokens, which is {needed}"
        raise InvalidInput("tensorrt_llm.kv_cache_tokens", settings.kv_cache_tokens, limit)
