"""The manifest beside an engine: what it was built from, with what, for which GPU, and how.

An engine is bound to all of these, and a run with others would fail late or, worse, speak from old
weights. The stage that builds engines rebuilds what :func:`stale_reasons` names; a server refuses it
(:func:`require_current`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import cosyvoice_runtime
from cosyvoice_runtime.errors import EngineFileError, shorten
from cosyvoice_runtime.settings.model import MANIFEST

PACKAGE = Path(cosyvoice_runtime.__file__).parent
ABSENT = object()


@dataclass(frozen=True)
class Manifest:
    """Sources that an engine was built from.

    Attributes:
        sources: SHA-256 of weight and ONNX files, by their names.
        tools: versions of the libraries that took part, by their names.
        gpu: name of the GPU as CUDA gives it; empty for files that fit every GPU.
        compute_capability: its capability, ``"9.0"``; empty likewise.
        options: how it was built (shape profiles, precision, flags): whatever JSON can hold. Kept as JSON
            gives it back, so tuples are lists.
    """

    sources: Mapping[str, str]
    tools: Mapping[str, str]
    gpu: str = ""
    compute_capability: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", json.loads(json.dumps(self.options)))

    def write(self, directory: str | Path) -> None:
        """Write it into the engine's directory, whole or not at all.

        Call this last: the engine files count as built from then on.
        """
        path = Path(directory) / MANIFEST
        incoming = path.with_name(f".{MANIFEST}")
        incoming.write_text(json.dumps(asdict(self), indent=2, sort_keys=True) + "\n", encoding="utf-8")
        os.replace(incoming, path)

    @classmethod
    def read(cls, directory: str | Path) -> Manifest:
        """The manifest in an engine's directory.

        Raises:
            EngineFileError: there is none, or it is damaged.
        """
        path = Path(directory) / MANIFEST
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            missing = "nothing was built here, or not to its end; stage 1 does it"
            raise EngineFileError(f"{path} is missing: {missing}") from error
        except (OSError, ValueError, RecursionError) as error:
            raise EngineFileError(f"{path}: not readable as JSON: {error}") from error
        if not _is_manifest(content):
            raise EngineFileError(f"{path}: not a manifest: {shorten(content)}")
        return cls(**content)


def differences(built: Manifest, wanted: Manifest) -> list[str]:
    """Differences that keep an engine from being the wanted one, a sentence each; empty if nothing does."""
    return [
        *_changed("source", built.sources, wanted.sources),
        *_changed("version of", built.tools, wanted.tools),
        *_changed("", _gpu(built), _gpu(wanted)),
        *_changed("option", dict(_leaves(built.options)), dict(_leaves(wanted.options))),
    ]


def stale_reasons(directory: str | Path, wanted: Manifest) -> list[str]:
    """Why the engine in a directory has to be built (again), a sentence each; empty if it is current."""
    try:
        return differences(Manifest.read(directory), wanted)
    except EngineFileError as error:
        return [str(error)]


def require_current(directory: str | Path, wanted: Manifest) -> None:
    """Refuse an engine that is not the wanted one.

    Raises:
        EngineFileError: the engine is missing, or was built from something else; says from what.
    """
    reasons = stale_reasons(directory, wanted)
    if reasons:
        raise EngineFileError(f"the engine in {directory} can't be used: {'; '.join(reasons)}")


def _is_manifest(content: Any) -> bool:
    if not isinstance(content, dict) or set(content) != {entry.name for entry in fields(Manifest)}:
        return False
    tables = [content["sources"], content["tools"]]
    return (
        all(isinstance(content[name], str) for name in ("gpu", "compute_capability"))
        and isinstance(content["options"], dict)
        and all(isinstance(table, dict) for table in tables)
        and all(isinstance(value, str) for table in tables for value in table.values())
    )


def _gpu(manifest: Manifest) -> dict[str, str]:
    return {"GPU": manifest.gpu, "compute capability": manifest.compute_capability}


def _changed(kind: str, built: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(built.keys() | wanted.keys()):
        before, now = built.get(name, ABSENT), wanted.get(name, ABSENT)
        if before != now:
            yield f"{kind} {name} was {_shown(before)} when built, now {_shown(now)}".strip()


def _shown(value: object) -> str:
    return "absent" if value is ABSENT else shorten(value)


def _leaves(options: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested options by dotted names, so that a difference names the one that differs."""
    for name, value in options.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def own_code(patterns: Iterable[str]) -> dict[str, str]:
    """This package as a manifest's ``tools``: its version, and a hash of the modules that write the files.

    Files of older code are stale although the weights are the same.

    Args:
        patterns: of paths in this package.
    """
    digest = hashlib.sha256()
    for pattern in patterns:
        for path in sorted(PACKAGE.glob(pattern)):
            digest.update(path.read_bytes())
    return {"cosyvoice_runtime": cosyvoice_runtime.__version__, "graph code": digest.hexdigest()}
