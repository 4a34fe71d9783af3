"""How much the cache holds, and whether that is what the settings promise."""

from __future__ import annotations

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm.cache import CachePool
from cosyvoice_runtime.settings import TensorrtLlmSettings


def check_cache_room(settings: TensorrtLlmSettings, max_positions: int) -> None:
    """For engines in which a running request never waits for cache that another one holds.

    Args:
        max_positions: that the network knows.

    Raises:
        InvalidInput: requests may be longer than that, or not all slots can hold the longest one.
    """
    _check_positions(settings, max_positions)
    if not _holds_all(settings):
        limit = f"engine {settings.engine} needs max_slots * max_sequence_tokens, which is {_all(settings)}"
        raise InvalidInput("tensorrt_llm.kv_cache_tokens", settings.kv_cache_tokens, limit)


def check_shared_room(settings: TensorrtLlmSettings, max_positions: int) -> None:
    """For an engine whose requests share pages.

    Raises:
        InvalidInput: requests may be longer than the network knows, or than the cache.
    """
    _check_positions(settings, max_positions)
    if settings.kv_cache_tokens < settings.max_sequence_tokens:
        limit = f"at least max_sequence_tokens, which is {settings.max_sequence_tokens}"
        raise InvalidInput("tensorrt_llm.kv_cache_tokens", settings.kv_cache_tokens, limit)


def shared_pool(settings: TensorrtLlmSettings, steps_read_pages: bool) -> CachePool | None:
    """Pages for all requests; None: each has its own slot.

    Args:
        steps_read_pages: others copy what they read of them, which slots that all fit would only slow down.
    """
    if _holds_all(settings) and not steps_read_pages:
        return None
    if _holds_all(settings):  # more than that nobody could take
        longest = CachePool.of(settings.max_sequence_tokens)
        return longest._replace(pages=settings.max_slots * longest.pages)
    return CachePool.of(settings.kv_cache_tokens)


def _check_positions(settings: TensorrtLlmSettings, max_positions: int) -> None:
    if settings.max_sequence_tokens > max_positions:
        limit = f"the network has {max_positions} positions"
        raise InvalidInput("tensorrt_llm.max_sequence_tokens", settings.max_sequence_tokens, limit)


def _holds_all(settings: TensorrtLlmSettings) -> bool:
    return settings.kv_cache_tokens >= _all(settings)


def _all(settings: TensorrtLlmSettings) -> int:
    return settings.max_slots * settings.max_sequence_tokens
