"""The address of the Redis that several fronts share."""

from __future__ import annotations

import logging
import re
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cosyvoice_runtime.errors import InvalidInput

if TYPE_CHECKING:
    from redis.asyncio import Redis

logger = logging.getLogger(__name__)

FIELD = "front.limits_url"
FORM = "redis://USER:PASSWORD@HOST:PORT/NUMBER, rediss:// or unix:///PATH is expected"
SCHEMES = ("redis", "rediss", "unix")
PACKAGE = "redis==8.1.0"
TIMEOUT_S = 1.0
CHECK_TIMEOUT_S = 5.0
"""How long a start waits to hear whether the address is right."""


def check_address(url: str) -> None:
    """Refuse an address that can't be right. A Redis that is away may come back, and is warned of.

    Raises:
        InvalidInput: redis-py is not installed, the address is none or doesn't resolve, or what answers there
            is no Redis, or none that lets this front in. No password is shown.
    """
    try:
        import redis
        from redis.exceptions import AuthenticationError, AuthorizationError, InvalidResponse, ResponseError
    except ImportError as error:
        raise InvalidInput(FIELD, shown(url), f"it needs a package: pip install {PACKAGE}") from error
    _check_form(url)
    try:
        with redis.Redis.from_url(url, **_options(CHECK_TIMEOUT_S)) as client:
            client.ping()
    except (AuthenticationError, AuthorizationError, ResponseError) as error:
        raise InvalidInput(
            FIELD, shown(url), f"a Redis that lets this front in is expected ({error})"
        ) from None
    except InvalidResponse:
        raise InvalidInput(FIELD, shown(url), "what answers there is no Redis") from None
    except redis.RedisError as error:
        logger.warning("%s: Redis is away, this front begins alone: %s", FIELD, error)
    except (TypeError, ValueError) as error:
        raise InvalidInput(FIELD, shown(url), f"{FORM} ({error})") from None


def open_redis(url: str) -> Redis:
    """A client that gives up a connection on which nothing answers for a second."""
    from redis.asyncio import Redis

    return Redis.from_url(url, **_options(TIMEOUT_S))


def shown(url: str) -> str:
    """The address without what may be secret."""
    return re.sub(r"(?<=://).*@", "...@", url.partition("?")[0], flags=re.DOTALL)


def _options(timeout_s: float) -> dict[str, Any]:
    """Options of a connection: no retries, the oldest protocol, and nothing sent but what is asked."""
    return {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "retry": None,
        "protocol": 2,
        "driver_info": None,
    }


def _check_form(url: str) -> None:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:  # whose words may be of the password
        raise InvalidInput(FIELD, shown(url), FORM) from None
    if parts.scheme == "unix":
        right = parts.path.startswith("/") and not host
    else:
        right = parts.scheme in SCHEMES and bool(host) and re.fullmatch(r"/?\d*", parts.path) is not None
    if not right:
        raise InvalidInput(FIELD, shown(url), FORM)
    if host:
        _resolve(url, host, port)


def _resolve(url: str, host: str, port: int | None) -> None:
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(FIELD, shown(url), f"a host that is known here ({reason})") from None
