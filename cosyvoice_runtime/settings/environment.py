"""Settings in environment variables, between which Kubernetes and Docker put some of their own."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping

logger = logging.getLogger(__name__)

PREFIX = "COSYVOICE_"
FILE_VARIABLE = "COSYVOICE_SETTINGS"
URL, HOST, NUMBER = r"(tcp|udp|sctp)://\S+", r"[0-9a-fA-F.:]+", r"[0-9]+"
ADDRESSES = {
    re.compile(rf"(\w+)_{name}"): re.compile(value)
    for name, value in {
        "SERVICE_HOST": HOST,
        r"SERVICE_PORT(_\w+)?": NUMBER,
        "PORT": URL,
        r"PORT_\d+_(TCP|UDP|SCTP)(_START|_END)?": URL,
        r"PORT_\d+_(TCP|UDP|SCTP)_PROTO": "tcp|udp|sctp",
        r"PORT_\d+_(TCP|UDP|SCTP)_PORT(_START|_END)?": NUMBER,
        r"PORT_\d+_(TCP|UDP|SCTP)_ADDR": HOST,
    }.items()
}
"""Names and values of the variables by which Kubernetes tells every container of a Service, and Docker of a
container that it links to. The value tells ``COSYVOICE_FRONT_PORT=tcp://10.0.0.1:8080``, of a Service named
``cosyvoice-front``, from ``COSYVOICE_PORT=8080``, a setting."""


def read_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """``COSYVOICE_TOKEN2WAV__MAX_BATCH=4`` to ``{"token2wav.max_batch": "4"}``.

    Variables of a Service or a linked container named ``cosyvoice`` or ``cosyvoice-...`` are left out, and
    one line of the log names them.
    """
    ours = {
        name: value
        for name, value in environment.items()
        if name.startswith(PREFIX) and name != FILE_VARIABLE
    }
    foreign = sorted(_of_other_containers(ours))
    if foreign:
        logger.info("addresses of Services or linked containers, not settings: %s", ", ".join(foreign))
    return {
        name.removeprefix(PREFIX).lower().replace("__", "."): value
        for name, value in ours.items()
        if name not in foreign
    }


def _of_other_containers(variables: Mapping[str, str]) -> Iterator[str]:
    """Their addresses and, of a container that Docker links to, its name and its own variables."""
    addresses = {name for name, value in variables.items() if _is_address(name, value)}
    linked = tuple(name.removesuffix("_PORT") for name in addresses if name.endswith("_PORT"))
    own = tuple(f"{name}_ENV_" for name in linked)
    names = {f"{name}_NAME" for name in linked}
    return (name for name in variables if name in addresses | names or name.startswith(own))


def _is_address(name: str, value: str) -> bool:
    return any(key.fullmatch(name) and form.fullmatch(value) for key, form in ADDRESSES.items())
