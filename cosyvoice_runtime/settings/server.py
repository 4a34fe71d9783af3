"""Section of the server: where it listens, how it is started, watched and stopped."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from cosyvoice_runtime.settings.section import Flag, Names, OptionalPath, Section

EVERY_MODEL = ("*",)
"""Stands for all models among the names of open ones."""


EVERY_GPU = ("all",)
"""Stands for all GPUs of the machine."""


class ServerSettings(Section):
    """``server``: tritonserver and its supervisor."""

    name: ClassVar[str] = "server"

    host: str = Field(
        "127.0.0.1",
        description="Address or name to listen on; 0.0.0.0 for every interface by IPv4, :: by IPv6 as well.",
    )
    allowed_hosts: Names = Field(
        (),
        description="Further [names](security.md#what-a-deployment-must-add) by which a server that listens "
        "on this machine alone may be called, as by a proxy.",
    )
    http_port: int = Field(8000, ge=0, le=65535, description="Port of HTTP; 0 takes a free one.")
    grpc_port: int = Field(8001, ge=0, le=65535, description="Port of gRPC; 0 takes a free one.")
    metrics_port: int = Field(
        8002, ge=0, le=65535, description="Port of Triton's own metrics; 0 takes a free one."
    )
    model_metrics_port: int = Field(
        8003,
        ge=0,
        le=65535,
        description="Port of all metrics, Triton's and the models'; 0 takes a free one.",
    )
    gpus: Names = Field(
        EVERY_GPU,
        description="GPUs that get a [server each](fleet.md#several-gpus-of-one-machine), behind one "
        "address: all, or numbers or UUIDs as `nvidia-smi -L` lists them.",
    )
    log_file: Path = Field(Path("tritonserver.log"), description="What tritonserver and the models write.")
    max_log_mib: int = Field(
        64,
        ge=1,
        le=1_048_576,
        description="Size at which that file is copied to one that ends in .1, and emptied.",
    )
    audit_file: OptionalPath = Field(
        "",
        description="File to which the gateways add a line of JSON for each utterance and refused request, "
        "without its text; none without it.",
    )
    entry_models: Names = Field(
        ("cosyvoice2", "cosyvoice2_offline"),
        description="Models that call the others: loaded last, unloaded first.",
    )
    open_models: Names = Field(
        ("cosyvoice2", "cosyvoice2_offline"),
        description="Models that clients may ask; * opens all of them, for development.",
    )
    max_request_mib: int = Field(
        24,
        ge=1,
        le=1024,
        description="Largest request; 24 hold 30 s of reference at 192 kHz and the longest text.",
    )
    arrival_timeout_s: float = Field(
        60.0,
        ge=1.0,
        le=3600.0,
        description="Longest time for a request to come: HTTP's headers, then its body; gRPC's first bytes "
        "and first message.",
    )
    stalled_client_timeout_s: float = Field(
        60.0,
        ge=1.0,
        le=3600.0,
        description="Longest time that a client may leave audio unread, on top of the playing time of what "
        "was sent.",
    )
    max_connection_age_s: float = Field(
        0.0,
        ge=0.0,
        le=86400.0,
        description="Age at which a gRPC connection is told to go away, so that new servers get their share; "
        "its calls go on. 0 for none.",
    )
    start_timeout_s: float = Field(
        600.0,
        ge=1.0,
        le=86400.0,
        description="Longest time from start until every model has answered its probe.",
    )
    probe_timeout_s: float = Field(60.0, ge=0.1, le=3600.0, description="Longest time of one probe.")
    probe_interval_s: float = Field(
        30.0, ge=0.0, le=86400.0, description="Time between two rounds of probes; 0 for none after the start."
    )
    probe_numbers: Flag = Field(
        True,
        description="Whether probes look at the numbers in answers: no NaN, no infinity, speech neither "
        "silent nor clipped.",
    )
    max_failed_probes: int = Field(
        3,
        ge=1,
        le=100,
        description="Failed probes in a row after which a model is reloaded, or a gateway started again.",
    )
    max_restarts: int = Field(
        5,
        ge=0,
        le=1_000_000,
        description="Times that tritonserver is started again within ten minutes.",
    )
    drain_timeout_s: float = Field(
        60.0,
        ge=0.0,
        le=86400.0,
        description="Longest time that utterances in flight get to finish when the server stops.",
    )
    exit_timeout_s: float = Field(
        5.0,
        ge=1.0,
        le=600.0,
        description="Longest time from SIGTERM until the rest of the server is killed.",
    )
