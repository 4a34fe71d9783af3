"""Names and shapes derived from a configuration are those of the published files and of the goldens."""

from __future__ import annotations

import json
from pathlib import Path

import goldens
import pytest

from cosyvoice_runtime.checkpoint.layout import PARTS, Part
from cosyvoice_runtime.checkpoint.merged_vocabulary import special_token_ids
from cosyvoice_runtime.checkpoint.schema import part_schema
from cosyvoice_runtime.checkpoint.tensors import schema_problems
from cosyvoice_runtime.families.tokens import SPECIAL_TOKENS_AND_UNITS
from making import (
    architecture,
    architecture_cosyvoice3,
    architecture_cosyvoice300m,
)

TESTS = Path(__file__).parent.parent
MANIFESTS = {
    goldens.COSYVOICE2: "manifests",
    goldens.COSYVOICE3: "manifests_cosyvoice3",
    goldens.COSYVOICE_300M: "manifests_cosyvoice300m",
}
PUBLISHED = {
    goldens.COSYVOICE2: architecture.FULL,
    goldens.COSYVOICE3: architecture_cosyvoice3.FULL,
    goldens.COSYVOICE_300M: architecture_cosyvoice300m.FULL,
}
each_family = pytest.mark.parametrize("family", MANIFESTS, ids=["cosyvoice2", "cosyvoice3", "cosyvoice300m"])


def published(family: goldens.Goldens, name: str) -> dict:
    return json.loads((TESTS / MANIFESTS[family] / f"{name}.json").read_text(encoding="utf-8"))


@each_family
def test_full_size_is_the_published_configuration(family: goldens.Goldens) -> None:
    assert family.config_of(published(family, "config")) == PUBLISHED[family]


@each_family
@pytest.mark.parametrize("part", PARTS)
def test_full_schema_equals_manifest(family: goldens.Goldens, part: Part) -> None:
    manifest = {name: tuple(shape) for name, shape in published(family, part).items()}
    assert part_schema(part, PUBLISHED[family]) == manifest


@each_family
@pytest.mark.parametrize("part", PARTS)
def test_golden_weights_have_names_and_shapes_of_schema(family: goldens.Goldens, part: Part) -> None:
    schema = part_schema(part, family.config())
    assert schema_problems(family.tensors(f"tiny_{part}"), schema) == []


def test_special_tokens_of_cosyvoice3_have_the_published_ids() -> None:
    assert special_token_ids(151643, SPECIAL_TOKENS_AND_UNITS) == published(
        goldens.COSYVOICE3, "special_tokens"
    )
