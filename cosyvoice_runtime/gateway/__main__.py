"""A gateway's process: ``python -m cosyvoice_runtime.gateway grpc``, or ``http``.

The first line of its standard input holds the options; it writes ``open`` when clients may come, and
``alive`` for each further line that it reads. The line ``leave`` tells it to begin no utterance any more. It
ends when its input does.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from typing import Any

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.gateway.options import LEAVE, GatewayOptions
from cosyvoice_runtime.process.garbage import keep_loaded
from cosyvoice_runtime.process.log_lines import log_lines


def main() -> int:
    log_lines(logging.INFO, "%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    # The terminal sends it to every process, and the supervisor drains the server first.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    options = GatewayOptions.from_json(sys.stdin.readline())
    return asyncio.run(_serve(sys.argv[1], options))


async def _serve(protocol: str, options: GatewayOptions) -> int:
    try:
        gateway = _gateway(protocol, options)
        await gateway.start()
    except (OSError, RuntimeError, InvalidInput) as error:
        print(error)
        return 1
    keep_loaded()
    print("open", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        if line == LEAVE:
            await gateway.leave()
        print("alive", flush=True)  # The loop that serves clients answers, so a loop that hangs is noticed.
    await gateway.close()
    return 0


def _gateway(protocol: str, options: GatewayOptions) -> Any:
    if protocol == "grpc":
        from cosyvoice_runtime.gateway.grpc_gateway import GrpcGateway

        return GrpcGateway(options)
    from cosyvoice_runtime.gateway.http_gateway import HttpGateway

    return HttpGateway(options)


if __name__ == "__main__":
    sys.exit(main())
