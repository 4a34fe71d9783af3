"""gRPC's options for a gateway's two sides: its clients, and the server or servers behind it."""

from __future__ import annotations

import json
from typing import Any

import grpc

from cosyvoice_runtime.gateway.limits import most_connections
from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.process.listening import DIRECT

UNLIMITED = ("grpc.max_receive_message_length", -1)
UNLIMITED_SENT = ("grpc.max_send_message_length", -1)
MAX_CALLS_OF_A_CONNECTION = 1024
"""Clients wait by themselves above this number. A proxy may send all of its clients over one connection."""
IN_TURN = {
    "loadBalancingConfig": [{"round_robin": {}}],
    # A server that says it is not serving is not asked: one that starts, or is stopping (gRFC A17).
    "healthCheckConfig": {"serviceName": ""},
}
"""gRPC's service configuration for several servers, which are asked one after the other."""
PING_MS = 5000
"""Time without a message after which another gateway is pinged, and in which it has to answer."""


def open_channel(options: GatewayOptions) -> grpc.aio.Channel:
    """The channel to tritonserver, or to the gateways of several servers."""
    common = [DIRECT, UNLIMITED, UNLIMITED_SENT, ("grpc.max_reconnect_backoff_ms", 500)]
    if not options.gateways:
        return grpc.aio.insecure_channel(f"unix:{options.server}", common)
    family = "ipv6" if options.gateways[0].startswith("[") else "ipv4"
    several: list[tuple[str, Any]] = [
        ("grpc.service_config", json.dumps(IN_TURN)),
        ("grpc.keepalive_time_ms", PING_MS),
        ("grpc.keepalive_timeout_ms", PING_MS),
        ("grpc.http2.ping_timeout_ms", PING_MS),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    return grpc.aio.insecure_channel(f"{family}:{','.join(options.gateways)}", [*common, *several])


def listening_options(options: GatewayOptions) -> list[tuple[str, int]]:
    """The options of the server to which clients connect."""
    return [
        ("grpc.max_receive_message_length", options.max_request_bytes),
        UNLIMITED_SENT,
        ("grpc.max_concurrent_streams", MAX_CALLS_OF_A_CONNECTION),
        ("grpc.so_reuseport", 1),
        ("grpc.max_allowed_incoming_connections", most_connections(files_each=1)),
        ("grpc.server_handshake_timeout_ms", int(options.arrival_timeout_s * 1000)),
        *_keepalive(options.stalled_client_timeout_s),
        *_age(options.max_connection_age_s),
    ]


def _keepalive(timeout_s: float) -> list[tuple[str, int]]:
    """The keepalive options: a client whose machine is gone is noticed within twice this time."""
    milliseconds = int(timeout_s * 1000)
    return [
        ("grpc.keepalive_time_ms", milliseconds),
        ("grpc.keepalive_timeout_ms", milliseconds),
        ("grpc.http2.ping_timeout_ms", milliseconds),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.max_ping_strikes", 0),  # Clients may ask for a sign of life as often as they like.
    ]


def _age(age_s: float) -> list[tuple[str, int]]:
    """The option that tells a connection of this age to go away, which its calls do not notice."""
    return [("grpc.max_connection_age_ms", int(age_s * 1000))] if age_s else []
