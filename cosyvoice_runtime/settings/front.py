"""Section of the front: where it listens, whom it lets in, and how much."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings.section import Accepted, Flag, GrpcAddress, Names, OptionalPath, Section

if TYPE_CHECKING:
    from typing import Self

DEFAULT_VOICE = "default"
"""Local voice of an alias for whatever voice the server takes for a request that names none."""
OPENAI_VOICES = (
    "alloy", "ash", "ballad", "coral", "echo", "fable", "onyx", "nova", "sage", "shimmer", "verse", "marin",
    "cedar",
)  # fmt: skip
EVERY_ORIGIN = "*"
"""Stands for pages of any origin."""
ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^\s/?#A-Z@*]+")


RedisAddress = Annotated[str, Accepted("redis://, rediss:// or unix:// with an address, or nothing")]


class FrontSettings(Section):
    """``front``: the server of OpenAI's speech API."""

    name: ClassVar[str] = "front"

    host: str = Field("127.0.0.1", description="Address to listen on; any other than this asks for keys.")
    port: int = Field(8080, ge=0, le=65535, description="Port of HTTP; 0 takes a free one.")
    metrics_port: int = Field(
        0, ge=0, le=65535, description="Port of metrics, without a key; there is none with 0."
    )
    grpc_url: GrpcAddress = Field(
        "127.0.0.1:8001",
        description="The server's gRPC port; dns:///name:port, or several addresses, for many servers.",
    )
    balancing: Literal["round_robin", "pick_first"] = Field(
        "round_robin",
        description="Which of several servers is asked: the next one and, where it refuses, another, or the "
        "first one only, as where a proxy balances.",
    )
    resume: Flag = Field(
        True,
        description="Whether speech goes on from another server when its own is lost, at most twice.",
    )
    api_keys_file: OptionalPath = Field(
        "", description="Names and hashes of keys that may call; everybody may without it."
    )
    allowed_hosts: Names = Field(
        (),
        description="Further names by which callers without a key may call, as a proxy passes them on.",
    )
    cors_origins: Names = Field(
        (),
        description="Origins whose pages may call, as https://app.example; * lets every page. Keys are "
        "asked for all the same.",
    )
    open_lists: Flag = Field(False, description="Whether models and voices are listed without a key.")
    page: Flag = Field(True, description="Whether there is a page to speak from, at /.")
    models: Names = Field(
        ("cosyvoice2", "tts-1", "tts-1-hd", "gpt-4o-mini-tts"),
        description="Names by which a request may call the one model.",
    )
    aliases: Names = Field(
        tuple(f"{voice}={DEFAULT_VOICE}" for voice in OPENAI_VOICES),
        description="Further names of voices, NAME=VOICE.",
    )
    voices_dir: OptionalPath = Field(
        "",
        description="The server's directory of voices, where uploaded ones are kept; no uploads without it.",
    )
    lexicons: OptionalPath = Field(
        "", description="Directory of [lexicons](front.md#lexicons) by key, voice and id; none without it."
    )
    max_text_characters: int = Field(4096, ge=1, le=100_000, description="Longest text of one request.")
    max_request_mib: int = Field(16, ge=1, le=1024, description="Largest body of a request.")
    voices_per_key: int = Field(
        100, ge=0, le=100_000, description="Uploaded voices that one key may keep; 0 is no limit."
    )
    max_streams: int = Field(256, ge=1, le=100_000, description="Utterances at once; one more gets 503.")
    requests_per_minute: int = Field(0, ge=0, le=1_000_000, description="Of one key; 0 is no limit.")
    streams_per_key: int = Field(
        0, ge=0, le=100_000, description="Utterances at once of one key; 0 is no limit."
    )
    characters_per_day: int = Field(
        0, ge=0, le=10**12, description="Of one key and day (UTC); 0 is no limit."
    )
    limits_url: RedisAddress = Field(
        "",
        description="[A Redis](front.md#limits-of-several-fronts) in which all fronts count together; each "
        "counts by itself without it.",
    )
    silence_timeout_s: float = Field(
        60.0, ge=0.1, le=3600.0, description="Longest wait for the server's next chunk."
    )
    stalled_client_timeout_s: float = Field(
        60.0, ge=0.1, le=3600.0, description="Longest time that a client may leave audio unread."
    )
    keep_alive_timeout_s: float = Field(
        75.0,
        ge=0.1,
        le=3600.0,
        description="Longest time of a connection between two requests: longer than a proxy keeps it.",
    )
    arrival_timeout_s: float = Field(
        30.0,
        ge=0.1,
        le=3600.0,
        description="Longest time for a request's headers to come, for its body, and for a websocket's "
        "session.config.",
    )
    idle_timeout_s: float = Field(
        20.0,
        ge=0.1,
        le=3600.0,
        description="Longest time that an open text waits for more; less than cosyvoice2.text_timeout_s.",
    )
    idle_socket_timeout_s: float = Field(
        300.0, ge=0.1, le=86_400.0, description="Longest time that a websocket stays open without a text."
    )
    audit_file: OptionalPath = Field(
        "",
        description="File to which a line of JSON is added for each request, without its text; - is "
        "standard output; none without it.",
    )
    leave_s: float = Field(
        5.0,
        ge=0.0,
        le=3600.0,
        description="From SIGTERM until the port closes: unready and still serving, for balancers to notice.",
    )
    drain_timeout_s: float = Field(
        60.0, ge=0.0, le=86400.0, description="Longest time that utterances get to finish at the end."
    )

    @model_validator(mode="after")
    def _origins_are_browsers_own(self) -> Self:
        """Require origins as browsers send them, since they are compared letter by letter."""
        for origin in self.cors_origins:
            if not ORIGIN.fullmatch(origin):
                limit = "*, null, or a scheme and a host in lower case without a path, as https://app.example"
                raise InvalidInput("front.cors_origins", origin, limit)
        return self

    @property
    def voices_by_alias(self) -> dict[str, str]:
        return dict(alias.split("=", 1) for alias in self.aliases)

    @model_validator(mode="after")
    def _aliases_name_voices(self) -> Self:
        for alias in self.aliases:
            name, _, voice = alias.partition("=")
            if not name or not voice:
                raise InvalidInput("front.aliases", alias, "NAME=VOICE with commas between")
        return self
