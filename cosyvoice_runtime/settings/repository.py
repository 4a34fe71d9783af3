"""The model repository: rendered from its templates by filling ``${name}``, and read as it was rendered."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.settings.deployment import Settings
from cosyvoice_runtime.settings.extractors import AudioTokenizerSettings, SpeakerEmbeddingSettings
from cosyvoice_runtime.settings.tensorrt_llm import TensorrtLlmSettings
from cosyvoice_runtime.settings.token2wav import Token2WavSettings

PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")
ESCAPED = re.compile(r"\\(.)")


class TemplateError(CosyVoiceError):
    """A template and the values for it do not fit each other."""


def placeholders(text: str) -> set[str]:
    """Names of all ``${name}`` in a text."""
    return set(PLACEHOLDER.findall(text))


def fill(text: str, values: Mapping[str, str], source: str) -> str:
    """Replace every placeholder; values are escaped to stand between the quotes of a text protobuf.

    Args:
        source: the template's name, for the error.

    Raises:
        TemplateError: a placeholder has no value.
    """
    require_filled(placeholders(text), values, source)
    return PLACEHOLDER.sub(lambda match: escape(values[match[1]]), text)


def require_filled(wanted: Iterable[str], values: Mapping[str, str], source: str) -> None:
    missing = sorted(set(wanted) - set(values))
    if missing:
        raise TemplateError(f"{source}: no value for {_listed(missing)}")


def require_used(wanted: Iterable[str], values: Mapping[str, str], source: str) -> None:
    """Refuse values that no placeholder asks for."""
    unused = sorted(set(values) - set(wanted))
    if unused:
        raise TemplateError(f"{source}: no placeholder for {_listed(unused)}")


def escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def unescape(text: str) -> str:
    """The value whose :func:`escape` is the text."""
    return ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], text)


def _listed(names: list[str]) -> str:
    return ", ".join(f"${{{name}}}" for name in names)


CONFIGURATION = "config.pbtxt"
TEMPLATE_SUFFIXES = (".pbtxt", ".json")
BY_PRODUCTS = ("__pycache__",)
"""Names that the server writes into a repository that it runs."""

Files = dict[Path, bytes]


def render(templates: Path, settings: Settings) -> Files:
    """Every file of the repository with its placeholders filled.

    ``*.pbtxt`` and ``*.json`` are templates, all else is copied.

    Returns:
        contents by path relative to the repository.

    Raises:
        TemplateError: there is no model, a placeholder has no setting, or a setting no placeholder.
        InvalidInput: there are no settings for a model, or its process could not read a path.
    """
    models = sorted(path.parent for path in templates.glob(f"*/{CONFIGURATION}"))
    if not models:
        raise TemplateError(f"{templates}: no <model>/{CONFIGURATION} in it")
    files: Files = {}
    for model in models:
        values = settings.parameters_of(model.name)
        _require_ascii_paths(model.name, values)
        files.update(_render_model(model, values))
    return files


def write(files: Files, output: Path) -> bool:
    """Make ``output`` hold exactly these files, replacing it in one step.

    Returns:
        False when it already did and nothing was written.

    Raises:
        TemplateError: ``output`` holds something else than a model repository.
    """
    if output.exists():
        if read(output) == files:
            return False
        _require_repository(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    fresh = output.with_name(f".{output.name}.{uuid.uuid4().hex}")
    stale = fresh.with_name(f"{fresh.name}.old")
    try:
        _write_files(files, fresh)
        if output.exists():
            os.rename(output, stale)
        os.rename(fresh, output)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    shutil.rmtree(stale, ignore_errors=True)
    return True


def read(repository: Path) -> Files:
    """Contents of a repository, without what a server left in it."""
    return {
        path.relative_to(repository): path.read_bytes()
        for path in sorted(repository.rglob("*"))
        if path.is_file() and not any(part in BY_PRODUCTS for part in path.relative_to(repository).parts)
    }


def _write_files(files: Files, directory: Path) -> None:
    for path, content in files.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def _render_model(model: Path, values: dict[str, str]) -> Files:
    files: Files = {}
    used: set[str] = set()
    for path, content in read(model).items():
        if path.suffix in TEMPLATE_SUFFIXES:
            text = content.decode()
            used |= placeholders(text)
            content = fill(text, values, f"{model.name}/{path}").encode()
        files[model.name / path] = content
    require_used(used, values, model.name)
    return files


def _require_ascii_paths(model: str, values: dict[str, str]) -> None:
    """Python in the models' processes reads paths as ASCII, whatever the locale."""
    for key, value in values.items():
        if value.startswith("/") and not value.isascii():
            raise InvalidInput(f"{model}.{key}", value, "a path in ASCII, which may be a link to it")


def _require_repository(output: Path) -> None:
    foreign = [entry.name for entry in output.iterdir() if not (entry / CONFIGURATION).is_file()]
    if foreign:
        raise TemplateError(
            f"{output} holds {foreign[0]}, which is no model; name a new directory or a model repository"
        )


HOST = Token2WavSettings.name
HOSTED = (TensorrtLlmSettings.name, AudioTokenizerSettings.name, SpeakerEmbeddingSettings.name)
"""Models that are computed in the host's process; their own are proxies."""
PARAMETER = re.compile(
    r'^parameters \{ key: "(\w+)" value: \{ string_value: "((?:[^"\\]|\\.)*)" \} \}$', re.MULTILINE
)
"""A parameter as the templates write it. Protobuf's reader, with its gRPC, takes 10 MiB of memory."""
BEGINNING = re.compile(r"^\s*parameters\b", re.MULTILINE)


def read_parameters(model: Path) -> dict[str, dict[str, str]]:
    """The ``parameters`` of a model's configuration, as Triton gives them to the model.

    Args:
        model: its directory.

    Raises:
        TemplateError: the configuration writes them in another way.
    """
    text = (model / CONFIGURATION).read_text(encoding="utf-8")
    found = PARAMETER.findall(text)
    if len(found) != len(BEGINNING.findall(text)):
        raise TemplateError(
            f"{model / CONFIGURATION}: each of the parameters is to stand in a line as rendered"
        )
    return {key: {"string_value": unescape(value)} for key, value in found}


def read_parameter(model: Path, key: str) -> str:
    """One parameter of a model; empty where the model, or the parameter, is missing."""
    return read_parameters(model).get(key, {}).get("string_value", "") if model.is_dir() else ""


def hosted_models(repository: Path) -> list[str]:
    """The models of a repository that token2wav's process computes besides its own."""
    return [model for model in HOSTED if (repository / model).exists()]


def home_of(repository: Path, model: str) -> str:
    """The model in whose process a model computes, itself as a rule."""
    return HOST if model in hosted_models(repository) else model
