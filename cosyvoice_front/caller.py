"""Who calls: a key, or anybody where none is asked for."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from cosyvoice_front.errors import foreign_page
from cosyvoice_front.keys import Keys

KEY_HEADER, KEY_PARAMETER = "x-api-key", "api_key"
"""Where a websocket brings its key: browsers send no headers of ours with one."""


def check_origin(keys: Keys, headers: Headers) -> None:
    """
    Raises:
        ApiError: the call comes from a page of another site. Without keys, any page that somebody on this
            machine opens could otherwise call.
    """
    origin = headers.get("origin")
    if not keys.asked and origin is not None and urlsplit(origin).netloc != headers.get("host"):
        raise foreign_page(origin)


def owner_by_header(keys: Keys, call: HTTPConnection) -> str:
    """Name of the key in ``Authorization``.

    Raises:
        ApiError: it brings no key that is known, or comes from a page of another site.
    """
    check_origin(keys, call.headers)
    return keys.owner(call.headers.get("authorization"))


def owner_by_any(keys: Keys, call: HTTPConnection) -> str:
    """Name of the key in ``X-API-Key``, in the query's ``api_key``, or in ``Authorization``.

    Raises:
        ApiError: it brings no key that is known, or comes from a page of another site.
    """
    key = call.headers.get(KEY_HEADER) or call.query_params.get(KEY_PARAMETER)
    if key is None:
        return owner_by_header(keys, call)
    check_origin(keys, call.headers)
    return keys.owner_of(key)
