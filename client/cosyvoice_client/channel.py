"""gRPC channels to one server, or to several with gRPC's own balancing."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import grpc

from cosyvoice_client.address import DIRECT, grpc_address, grpc_target, is_here, names_several
from cosyvoice_client.errors import InvalidArgumentError

UNLIMITED = -1
OPTIONS = [
    ("grpc.max_send_message_length", UNLIMITED),
    ("grpc.max_receive_message_length", UNLIMITED),
    # Otherwise all clients of a process share one connection, and with it one flow-control window.
    ("grpc.use_local_subchannel_pool", 1),
    # Otherwise a server that was away for a minute is not asked for half a minute after it is back.
    ("grpc.max_reconnect_backoff_ms", 500),
]
BALANCING = ("round_robin", "pick_first")
SERVICE_CONFIG = {
    "loadBalancingConfig": [{"round_robin": {}}],
    # A server that says it is not serving is not asked: one that starts, or is stopping (gRFC A17).
    "healthCheckConfig": {"serviceName": ""},
}
"""gRPC's service configuration for several servers.

Its retry policy (gRFC A6) is not used: with gRPC 1.85 a call that is sent again may never be (grpc/grpc issue
41036), and it tells only the last refusal.
"""


class OpenChannel(NamedTuple):
    """A channel, its name in errors, and whether what is refused goes to another server."""

    channel: Any
    name: str
    asks_elsewhere: bool


def open_channel(url: str, *, proxy: bool, balancing: str, ping_s: float) -> OpenChannel:
    """A channel as :class:`~cosyvoice_client.AsyncSpeechClient` describes it.

    Raises:
        InvalidArgumentError: the URL is none that gRPC can use, or there is no such way of balancing.
    """
    if balancing not in BALANCING:
        raise InvalidArgumentError(f"balancing: {balancing!r} is none of {', '.join(BALANCING)}")
    address = grpc_address(url)
    several = names_several(address) and balancing == "round_robin"
    options = [*OPTIONS, *_pings(ping_s), *_balanced(several)]
    if not proxy or is_here(address):
        options.append(DIRECT)
    return OpenChannel(grpc.aio.insecure_channel(grpc_target(address), options), address, several)


def _balanced(several: bool) -> list[tuple[str, str]]:
    return [("grpc.service_config", json.dumps(SERVICE_CONFIG))] if several else []


def _pings(ping_s: float) -> list[tuple[str, int]]:
    """The keepalive options: a server whose machine is gone is noticed within one and a half times this."""
    if not ping_s:
        return []
    return [
        ("grpc.keepalive_time_ms", int(1000 * ping_s)),
        ("grpc.keepalive_timeout_ms", int(500 * ping_s)),
        ("grpc.http2.ping_timeout_ms", int(500 * ping_s)),
        ("grpc.http2.max_pings_without_data", 0),
    ]
