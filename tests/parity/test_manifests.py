"""Names and shapes derived from a configuration are those of the published files and of the goldens."""

from __future__ import annotations

import json
from pathlib import Path

import goldens
import pytest

from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.layout import PARTS, Part
from cosyvoice_runtime.checkpoint.making.architecture import FULL
from cosyvoice_runtime.checkpoint.schema import part_schema
from cosyvoice_runtime.checkpoint.tensors import schema_problems

MANIFESTS = Path(__file__).parent.parent / "manifests"


def published(name: str) -> dict:
    return json.loads((MANIFESTS / f"{name}.json").read_text(encoding="utf-8"))


def test_full_size_is_the_published_configuration() -> None:
    sections = published("config")
    assert ModelConfig.from_sections(sections, sections["encoder_up_blocks"]) == FULL


@pytest.mark.parametrize("part", PARTS)
def test_full_schema_equals_manifest(part: Part) -> None:
    manifest = {name: tuple(shape) for name, shape in published(part).items()}
    assert part_schema(part, FULL) == manifest


@pytest.mark.parametrize("part", PARTS)
def test_golden_weights_have_names_and_shapes_of_schema(part: Part) -> None:
    schema = part_schema(part, goldens.config())
    assert schema_problems(goldens.tensors(f"tiny_{part}"), schema) == []
