"""All settings of a deployment and the ways to give them."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings.cosyvoice2 import CosyVoice2Settings
from cosyvoice_runtime.settings.extractors import AudioTokenizerSettings, SpeakerEmbeddingSettings
from cosyvoice_runtime.settings.front import FrontSettings
from cosyvoice_runtime.settings.gpu_memory import (
    OTHERS_GIB,
    divide_one_gpu,
    on_one_gpu,
    with_carried_slots,
)
from cosyvoice_runtime.settings.machine import Machine, require_gpus, tell_unused_gpu
from cosyvoice_runtime.settings.model import gpu_number
from cosyvoice_runtime.settings.section import AUTO, Section, unknown_key
from cosyvoice_runtime.settings.server import ServerSettings
from cosyvoice_runtime.settings.tensorrt_llm import TAKE_OPEN_TEXT, TensorrtLlmSettings
from cosyvoice_runtime.settings.token2wav import Token2WavSettings

PREFIX = "COSYVOICE_"
FILE_VARIABLE = "COSYVOICE_SETTINGS"
URL, HOST, NUMBER = r"(tcp|udp|sctp)://\S+", r"[0-9a-fA-F.:]+", r"[0-9]+"
ADDRESSES = {
    re.compile(rf"(\w+)_{name}"): re.compile(value)
    for name, value in {
        "SERVICE_HOST": HOST,
        r"SERVICE_PORT(_\w+)?": NUMBER,
        "PORT": URL,
        r"PORT_\d+_(TCP|UDP|SCTP)(_START|_END)?": URL,
        r"PORT_\d+_(TCP|UDP|SCTP)_PROTO": "tcp|udp|sctp",
        r"PORT_\d+_(TCP|UDP|SCTP)_PORT(_START|_END)?": NUMBER,
        r"PORT_\d+_(TCP|UDP|SCTP)_ADDR": HOST,
    }.items()
}
"""Names and values of the variables by which Kubernetes tells every container of a Service, and Docker of a
container that it links to. The value tells ``COSYVOICE_FRONT_PORT=tcp://10.0.0.1:8080``, of a Service named
``cosyvoice-front``, from ``COSYVOICE_PORT=8080``, a setting."""


def read_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """``COSYVOICE_TOKEN2WAV__MAX_BATCH=4`` to ``{"token2wav.max_batch": "4"}``.

    Variables of a Service or a linked container named ``cosyvoice`` or ``cosyvoice-...`` are left out, and
    one line of the log names them.
    """
    ours = {
        name: value
        for name, value in environment.items()
        if name.startswith(PREFIX) and name != FILE_VARIABLE
    }
    foreign = sorted(_of_other_containers(ours))
    if foreign:
        logger.info("addresses of Services or linked containers, not settings: %s", ", ".join(foreign))
    return {
        name.removeprefix(PREFIX).lower().replace("__", "."): value
        for name, value in ours.items()
        if name not in foreign
    }


def _of_other_containers(variables: Mapping[str, str]) -> Iterator[str]:
    """Their addresses and, of a container that Docker links to, its name and its own variables."""
    addresses = {name for name, value in variables.items() if _is_address(name, value)}
    linked = tuple(name.removesuffix("_PORT") for name in addresses if name.endswith("_PORT"))
    own = tuple(f"{name}_ENV_" for name in linked)
    names = {f"{name}_NAME" for name in linked}
    return (name for name in variables if name in addresses | names or name.startswith(own))


def _is_address(name: str, value: str) -> bool:
    return any(key.fullmatch(name) and form.fullmatch(value) for key, form in ADDRESSES.items())


logger = logging.getLogger(__name__)

ANSWERED_BY = {"cosyvoice2_offline": "cosyvoice2"}
"""Models whose requests another entry model answers, with its own settings."""
NEEDED_BY_PROXY = ("log_level",)
NO_MODELS = ("server", "front")
"""Sections of processes beside the models."""


class Settings(BaseModel):
    """Every setting, with its default.

    A value is given under ``section.key``, or under ``key`` for every section that has it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    cosyvoice2: CosyVoice2Settings = CosyVoice2Settings()
    tensorrt_llm: TensorrtLlmSettings = TensorrtLlmSettings()
    audio_tokenizer: AudioTokenizerSettings = AudioTokenizerSettings()
    speaker_embedding: SpeakerEmbeddingSettings = SpeakerEmbeddingSettings()
    token2wav: Token2WavSettings = Token2WavSettings()
    server: ServerSettings = ServerSettings()
    front: FrontSettings = FrontSettings()

    @classmethod
    def read(cls, assignments: Iterable[str] = (), environment: Mapping[str, str] | None = None) -> Settings:
        """Defaults, then a TOML file, then the environment, then assignments; the last one wins.

        Args:
            assignments: ``KEY=VALUE`` or ``SECTION.KEY=VALUE``.
            environment: variables ``COSYVOICE_KEY`` or ``COSYVOICE_SECTION__KEY``;
                ``COSYVOICE_SETTINGS`` names the file.

        Raises:
            InvalidInput: an unknown key or a value that is not accepted.
        """
        environment = environment or {}
        settings = cls()
        if FILE_VARIABLE in environment:
            settings = settings.with_texts(read_toml(Path(environment[FILE_VARIABLE])))
        settings = settings.with_texts(read_environment(environment))
        return settings.with_texts(dict(split_assignment(text) for text in assignments))

    def with_texts(self, texts: Mapping[str, str]) -> Settings:
        """A copy with these values; a key that names its section wins over one that does not."""
        texts_by_section: dict[str, dict[str, str]] = {name: {} for name in self.sections()}
        for key, text in sorted(texts.items(), key=lambda item: "." in item[0]):
            for name in self._owners(key, text):
                texts_by_section[name][key.rpartition(".")[2]] = text
        sections: dict[str, Any] = {
            name: section.replace(**texts_by_section[name]) for name, section in self.sections().items()
        }
        return Settings(**sections)

    def sections(self) -> dict[str, Section]:
        return dict(self)

    def for_model(self, model: str) -> Section:
        """The section that configures a model of the repository."""
        sections = {name: section for name, section in self.sections().items() if name not in NO_MODELS}
        name = ANSWERED_BY.get(model, model)
        if name not in sections:
            raise InvalidInput("model", model, f"known are {', '.join([*sections, *ANSWERED_BY])}")
        return sections[name]

    def parameters_of(self, model: str) -> dict[str, str]:
        """Texts of the settings that a model of the repository is told, by name."""
        values = self.for_model(model).placeholders()
        return {key: values[key] for key in NEEDED_BY_PROXY} if model in ANSWERED_BY else values

    def resolved(self, machine: Machine) -> Settings:
        """A copy without ``auto`` and without relative paths.

        Raises:
            InvalidInput: two sections disagree, or a setting asks for a GPU that torch can't use.
        """
        require_gpus(self.sections(), machine.obstacle)
        sections: dict[str, Any] = {name: each.resolved(machine) for name, each in self.sections().items()}
        _require_one_gpu(sections["token2wav"], sections["tensorrt_llm"])
        lm = with_carried_slots(self.tensorrt_llm, sections["token2wav"], machine)
        sections["tensorrt_llm"] = lm
        sections["token2wav"] = _beside(sections["token2wav"], lm, machine)
        sections["cosyvoice2"] = _fed(_begun(sections["cosyvoice2"], sections["token2wav"]), lm)
        sections["token2wav"] = _divided(sections["token2wav"], sections["tensorrt_llm"])
        if self.tensorrt_llm.engine == "tensorrt_llm" and self.cosyvoice2.sampling == "ras":
            logger.warning(
                "tensorrt_llm.engine is tensorrt_llm and cosyvoice2.sampling ras: engine torch is the faster "
                "one for ras (docs/engines.md); tensorrt_llm is for cosyvoice2.sampling nucleus"
            )
        return Settings(**sections)

    def tell_choices(self, resolved: Settings, machine: Machine) -> None:
        """Log what became of each ``auto``, and why it is no GPU where the machine has one.

        Args:
            resolved: these settings for the machine.
        """
        tell_unused_gpu(self.sections(), machine.obstacle)
        sections = resolved.sections()
        for name, section in self.sections().items():
            chosen, why = sections[name].placeholders(), section.why(machine)
            for key, before in section.placeholders().items():
                if before == AUTO and chosen[key] != AUTO:
                    reason = f": {why[key]}" if key in why else ""
                    logger.info("%s.%s: auto is %s%s", name, key, chosen[key], reason)

    def _owners(self, key: str, text: str) -> list[str]:
        section, _, name = key.rpartition(".")
        sections = self.sections()
        if section and section not in sections:
            raise InvalidInput(key, text, f"there is no section {section}; known are {', '.join(sections)}")
        if section:
            return [section]
        owners = [owner for owner, candidate in sections.items() if name in candidate.field_names()]
        if not owners:
            known = {known for candidate in sections.values() for known in candidate.field_names()}
            raise unknown_key(key, text, tuple(sorted(known)))
        return owners


def _require_one_gpu(token2wav: Token2WavSettings, lm: TensorrtLlmSettings) -> None:
    """Refuse networks on two GPUs, on which two servers speak more: docs/fleet.md."""
    if len({gpu_number(lm.device), gpu_number(token2wav.device)} - {None}) > 1:
        limit = f"the GPU of the speech LM, {lm.device}: of several GPUs each has a server of its own"
        raise InvalidInput("token2wav.device", token2wav.device, limit)


def _beside(token2wav: Token2WavSettings, lm: TensorrtLlmSettings, machine: Machine) -> Token2WavSettings:
    """Choose the memory of its GPUs that token2wav leaves to others, the speech LM first of all."""
    if token2wav.gpu_reserve_gib:
        return token2wav
    taken = lm.gib_on(machine.facts_of(gpu_number(lm.device))) if on_one_gpu(token2wav, lm) else 0.0
    return token2wav.replace(gpu_reserve_gib=OTHERS_GIB + taken)


def _divided(token2wav: Token2WavSettings, lm: TensorrtLlmSettings) -> Token2WavSettings:
    """Turns divide a GPU only if no engine computes there that knows nothing of the division."""
    if on_one_gpu(token2wav, lm) and not divide_one_gpu(lm, token2wav):
        return token2wav.replace(first_chunks_beside=False)
    return token2wav


def _begun(cosyvoice2: CosyVoice2Settings, token2wav: Token2WavSettings) -> CosyVoice2Settings:
    """Choose the first chunk: a GPU has the next one ready sooner than a short first one is heard."""
    if cosyvoice2.first_hop_tokens or any(gpu_number(device) is None for device in token2wav.devices):
        return cosyvoice2.replace(first_hop_tokens=cosyvoice2.first_hop)
    return cosyvoice2.replace(first_hop_tokens=Layout(cosyvoice2.checkpoint_dir).family.gpu_first_hop)


def _fed(cosyvoice2: CosyVoice2Settings, lm: TensorrtLlmSettings) -> CosyVoice2Settings:
    """Choose clauses for an engine that takes the text of a request whole.

    Raises:
        InvalidInput: the other way is asked for.
    """
    if lm.engine in TAKE_OPEN_TEXT:
        return cosyvoice2
    if cosyvoice2.text_feeding == "interleaved":
        limit = (
            f"auto or clauses with tensorrt_llm.engine={lm.engine}, which takes the text of a request whole"
        )
        raise InvalidInput("cosyvoice2.text_feeding", cosyvoice2.text_feeding, limit)
    return cosyvoice2.replace(text_feeding="clauses")


def split_assignment(text: str) -> tuple[str, str]:
    """``KEY=VALUE`` to (key, value); the value may hold further ``=``."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InvalidInput("setting", text, "KEY=VALUE or SECTION.KEY=VALUE")
    return key.strip(), value.strip()


def read_toml(path: Path) -> dict[str, str]:
    """Top-level keys and one level of tables to ``{"section.key": text}``."""
    import tomllib  # Python 3.11; the other ways to give settings work without it

    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InvalidInput("settings file", str(path), f"a readable TOML file ({error})") from error
    texts: dict[str, str] = {}
    for key, value in document.items():
        entries = (
            {f"{key}.{inner}": entry for inner, entry in value.items()}
            if isinstance(value, dict)
            else {key: value}
        )
        texts.update({name: _toml_text(entry) for name, entry in entries.items()})
    return texts


def _toml_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
