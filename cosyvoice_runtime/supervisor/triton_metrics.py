"""The metrics of tritonserver itself."""

from __future__ import annotations

from collections import Counter

from prometheus_client.parser import text_string_to_metric_families

from cosyvoice_runtime.supervisor.guarded_call import Check, keep_waiting
from cosyvoice_runtime.supervisor.http_call import ControlError, http_call

QUEUED = "nv_inference_pending_request_count"
TIMEOUT_S = 5.0


def triton_metrics(url: str, check: Check = keep_waiting) -> str:
    """Triton's page.

    Raises:
        ControlError: it can't be read.
    """
    answer = http_call(url, "GET", "/metrics", TIMEOUT_S, check=check)
    if answer.status != 200:
        raise ControlError(f"metrics: HTTP {answer.status}")
    return answer.body.decode()


def queued_requests(url: str, check: Check = keep_waiting) -> Counter[str]:
    """Requests that wait in Triton's queue, by model.

    Raises:
        ControlError: the metrics can't be read.
    """
    counts: Counter[str] = Counter()
    for family in text_string_to_metric_families(triton_metrics(url, check)):
        if family.name == QUEUED:
            for sample in family.samples:
                counts[sample.labels["model"]] += int(sample.value)
    return counts
