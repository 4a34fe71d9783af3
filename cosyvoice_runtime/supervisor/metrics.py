"""What the server's metrics tell about requests in its queues."""

from __future__ import annotations

import http.client
import re
from collections import Counter

from cosyvoice_runtime.supervisor.control import ControlError

QUEUE_SAMPLE = re.compile(
    r'^nv_inference_pending_request_count\{[^}]*\bmodel="([^"]*)"[^}]*\} (\S+)$', re.MULTILINE
)
TIMEOUT_S = 5.0


def queued_requests(metrics_url: str) -> Counter[str]:
    """Requests that wait in Triton's queue, by model.

    Raises:
        ControlError: the metrics can't be read.
    """
    connection = http.client.HTTPConnection(metrics_url, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException) as error:
        raise ControlError(f"no answer to metrics: {error!r}") from error
    finally:
        connection.close()
    counts: Counter[str] = Counter()
    for model, value in QUEUE_SAMPLE.findall(text):
        counts[model] += int(float(value))
    return counts
