"""This process among Dynamo's workers: there while its server takes requests."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import suppress

from dynamo.common.utils.namespace import get_worker_namespace
from dynamo.llm import ModelInput, ModelType, WorkerType, register_model
from dynamo.runtime import DistributedRuntime, Endpoint

from cosyvoice_dynamo.speaker import Speaker
from cosyvoice_front.errors import ApiError
from cosyvoice_front.front import open_front
from cosyvoice_front.metrics import Metrics
from cosyvoice_front.metrics_port import metrics_port
from cosyvoice_front.server_client import SpeechServer
from cosyvoice_runtime.process.audit_log import AuditLog
from cosyvoice_runtime.settings import Settings

logger = logging.getLogger(__name__)

ENDPOINT = "cosyvoice.generate"
"""Component and endpoint in Dynamo's namespace; the operator looks at the health of ``generate``."""
LOOK_S = 0.5
"""Time between two looks at the server. Until then a lost one refuses what this worker is given."""


async def work(runtime: DistributedRuntime, settings: Settings) -> None:
    """Serve from when the server is ready until SIGTERM, and then until all answers have ended.

    Raises:
        InvalidInput: a setting can't be used.
    """
    stopping = asyncio.Event()
    _stop_by_signals(stopping)
    front, metrics = settings.front, Metrics()
    async with open_front(settings, metrics, AuditLog("", "front.audit_file")) as opened:
        with metrics_port(front, metrics):
            if not await _is_ready_before(opened.server, stopping):
                return
            endpoint = runtime.endpoint(f"{get_worker_namespace()}.{ENDPOINT}")
            await _register(endpoint, front.models)
            serving = asyncio.ensure_future(endpoint.serve_endpoint(Speaker(opened).answer))
            follows = asyncio.create_task(_follow(opened.server, endpoint, stopping))
            await asyncio.wait({serving, follows}, return_when=asyncio.FIRST_COMPLETED)
            if not follows.done():
                follows.cancel()
                await serving  # raises what has ended it
                return
            await follows
            await asyncio.sleep(front.leave_s)  # so that frontends have noticed
            runtime.shutdown()
            await asyncio.wait({serving}, timeout=front.drain_timeout_s)


def _stop_by_signals(stopping: asyncio.Event) -> None:
    """Set the event with the first SIGTERM or Ctrl-C; a second one ends the process."""
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        loop.remove_signal_handler(number)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)


async def _register(endpoint: Endpoint, models: tuple[str, ...]) -> None:
    name, *aliases = models
    await register_model(
        ModelInput.Text,
        ModelType.Audios,
        endpoint,
        name,
        model_name=name,
        model_aliases=aliases,
        worker_type=WorkerType.Aggregated,
        skip_model_assets=True,
    )


async def _follow(server: SpeechServer, endpoint: Endpoint, stopping: asyncio.Event) -> None:
    """Leave Dynamo's list of workers while the server is not ready, and for good when this process stops."""
    listed = True
    while not stopping.is_set():
        if (ready := await is_ready(server)) != listed:
            logger.warning("the server is %s", "ready again" if ready else "not ready: no requests come here")
            await (
                endpoint.register_endpoint_instance() if ready else endpoint.unregister_endpoint_instance()
            )
            listed = ready
        await _pause(stopping)
    if listed:
        await endpoint.unregister_endpoint_instance()


async def _is_ready_before(server: SpeechServer, stopping: asyncio.Event) -> bool:
    """Wait for the server; False where this process is to stop before."""
    while not stopping.is_set():
        if await is_ready(server):
            return True
        await _pause(stopping)
    return False


async def _pause(stopping: asyncio.Event) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), LOOK_S)


async def is_ready(server: SpeechServer) -> bool:
    """Whether the server takes requests."""
    try:
        await server.check()
    except ApiError:
        return False
    return True
