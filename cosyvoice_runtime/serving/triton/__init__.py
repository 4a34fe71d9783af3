"""The one place that knows Triton's python backend: tensors, replies, calls between models, errors.

``triton_python_backend_utils`` exists only inside a server's stub process, so this package is imported
by the models of ``model_repo/`` and by nothing else.
"""

from cosyvoice_runtime.metrics import Metric, Metrics
from cosyvoice_runtime.serving.triton.calls import CallError, Outputs
from cosyvoice_runtime.serving.triton.fault import fault
from cosyvoice_runtime.serving.triton.inputs import Inputs
from cosyvoice_runtime.serving.triton.load import read_settings
from cosyvoice_runtime.serving.triton.recordings import recordings
from cosyvoice_runtime.serving.triton.reply import ClientGoneError, Reply, answer, respond

__all__ = [
    "CallError",
    "ClientGoneError",
    "Inputs",
    "Metric",
    "Metrics",
    "Outputs",
    "Reply",
    "answer",
    "fault",
    "read_settings",
    "recordings",
    "respond",
]
