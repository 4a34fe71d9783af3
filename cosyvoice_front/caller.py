"""Who calls: a key, or anybody where none is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection

from cosyvoice_front import audit
from cosyvoice_front.errors import foreign_host, foreign_page
from cosyvoice_runtime.process.browsers import host_of, is_fixed
from cosyvoice_runtime.settings.front import EVERY_ORIGIN

if TYPE_CHECKING:
    from cosyvoice_front.front import Front

KEY_HEADER, KEY_PARAMETER = "x-api-key", "api_key"
"""Where a websocket brings its key: browsers send no headers of ours with one."""


def owner_by_header(front: Front, call: HTTPConnection) -> str:
    """Name of the key in ``Authorization``.

    Raises:
        ApiError: it brings no key that is known, or comes from a page of another site.
    """
    audit.current().asks_key(call.scope)
    _check_page(front, call)
    return _noted(front.keys.owner(call.headers.get("authorization")))


def owner_by_any(front: Front, call: HTTPConnection) -> str:
    """Name of the key in ``X-API-Key``, in the query's ``api_key``, or in ``Authorization``.

    Raises:
        ApiError: it brings no key that is known, or comes from a page of another site.
    """
    key = call.headers.get(KEY_HEADER) or call.query_params.get(KEY_PARAMETER)
    if key is None:
        return owner_by_header(front, call)
    audit.current().asks_key(call.scope)
    _check_page(front, call)
    return _noted(front.keys.owner_of(key))


def _noted(owner: str) -> str:
    audit.current().key = owner
    return owner


def _check_page(front: Front, call: HTTPConnection) -> None:
    """Raise an ApiError where the call comes from a page of another site.

    Without keys, any page that somebody on this machine opens could otherwise call, and so could one whose
    own name is made to lead to this machine.
    """
    origins = front.settings.front.cors_origins
    if front.keys.asked and not (origins and call.scope["type"] == "websocket"):
        return  # a page has no key by itself, and browsers keep answers of HTTP from pages that may not ask
    host, origin = call.headers.get("host", ""), call.headers.get("origin")
    if not front.keys.asked and "host" in call.headers:  # every browser sends it, HTTP/1.0 may not
        _check_host(front, host)
    is_named = origin in origins or EVERY_ORIGIN in origins
    if origin is not None and host_of(origin)[0] != host and not is_named:
        raise foreign_page(origin)


def _check_host(front: Front, host: str) -> None:
    """Raise an ApiError for a name that may lead here without anybody's knowing."""
    name = host_of(host, "//")[1]
    if not (is_fixed(name) or name in map(str.lower, front.settings.front.allowed_hosts)):
        raise foreign_host(host)
