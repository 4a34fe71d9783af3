"""The metrics of tritonserver itself."""

from __future__ import annotations

import http.client
import re
from collections import Counter

from cosyvoice_runtime.supervisor.control import ControlError

QUEUE_SAMPLE = re.compile(
    r'^nv_inference_pending_request_count\{[^}]*\bmodel="([^"]*)"[^}]*\} (\S+)$', re.MULTILINE
)
TIMEOUT_S = 5.0


def triton_metrics(url: str) -> str:
    """Triton's page.

    Raises:
        ControlError: it can't be read.
    """
    connection = http.client.HTTPConnection(url, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        text = response.read().decode()
    except (OSError, http.client.HTTPException) as error:
        raise ControlError(f"no answer to metrics: {error!r}") from error
    finally:
        connection.close()
    if response.status != 200:
        raise ControlError(f"metrics: HTTP {response.status}")
    return text


def queued_requests(url: str) -> Counter[str]:
    """Requests that wait in Triton's queue, by model.

    Raises:
        ControlError: the metrics can't be read.
    """
    counts: Counter[str] = Counter()
    for model, value in QUEUE_SAMPLE.findall(triton_metrics(url)):
        counts[model] += int(float(value))
    return counts
