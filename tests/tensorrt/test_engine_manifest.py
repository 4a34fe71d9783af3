from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_runtime.checkpoint.checksums import sha256_of
from cosyvoice_runtime.errors import EngineFileError
from cosyvoice_runtime.manifest import (
    Manifest,
    differences,
    require_current,
    stale_reasons,
)

BUILT = Manifest(
    sources={"flow.onnx": "a" * 64, "flow.pt": "b" * 64},
    tools={"tensorrt": "10.14.1.48", "cosyvoice_runtime": "2.0.0"},
    gpu="NVIDIA H100 80GB HBM3",
    compute_capability="9.0",
    options={"precision": "float16", "profiles": [{"x": ((1, 8), (4, 50))}], "builder": {"level": 3}},
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


def test_manifest_comes_back_equal(tmp_path: Path) -> None:
    BUILT.write(tmp_path)
    assert Manifest.read(tmp_path) == BUILT
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


@settings(max_examples=40)
@given(st.dictionaries(st.text(max_size=4), JSON_VALUES, max_size=4))
def test_any_json_option_equals_itself_after_writing(options: dict[str, Any]) -> None:
    manifest = replace(BUILT, options=options)
    assert differences(replace(BUILT, options=json.loads(json.dumps(options))), manifest) == []


def test_writing_again_replaces(tmp_path: Path) -> None:
    BUILT.write(tmp_path)
    later = replace(BUILT, gpu="NVIDIA L4", compute_capability="8.9")
    later.write(tmp_path)
    assert Manifest.read(tmp_path) == later


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"sources": {**BUILT.sources, "flow.pt": "c" * 64}},
            f"source flow.pt was {'b' * 64!r} when built, now {'c' * 64!r}",
        ),
        (
            {"tools": {**BUILT.tools, "tensorrt": "11.0.0"}},
            "version of tensorrt was '10.14.1.48' when built, now '11.0.0'",
        ),
        (
            {"tools": {"tensorrt": "10.14.1.48"}},
            "version of cosyvoice_runtime was '2.0.0' when built, now absent",
        ),
        ({"gpu": "NVIDIA L4"}, "GPU was 'NVIDIA H100 80GB HBM3' when built, now 'NVIDIA L4'"),
        ({"compute_capability": "8.9"}, "compute capability was '9.0' when built, now '8.9'"),
        (
            {"options": {**BUILT.options, "builder": {"level": 5}}},
            "option builder.level was 3 when built, now 5",
        ),
        (
            {"options": {**BUILT.options, "graph": True}},
            "option graph was absent when built, now True",
        ),
    ],
)
def test_each_difference_is_one_sentence(change: dict[str, Any], sentence: str) -> None:
    assert differences(BUILT, replace(BUILT, **change)) == [sentence]


def test_a_profile_that_changed_is_named() -> None:
    wanted = replace(BUILT, options={**BUILT.options, "profiles": [{"x": ((1, 8), (4, 60))}]})
    (sentence,) = differences(BUILT, wanted)
    assert sentence.startswith("option profiles was ")


def test_the_engine_it_describes_is_current(tmp_path: Path) -> None:
    BUILT.write(tmp_path)
    assert stale_reasons(tmp_path, BUILT) == []
    require_current(tmp_path, BUILT)


def test_a_stale_engine_is_refused_with_every_reason(tmp_path: Path) -> None:
    BUILT.write(tmp_path)
    wanted = replace(BUILT, gpu="NVIDIA L4", compute_capability="8.9")
    with pytest.raises(EngineFileError) as refusal:
        require_current(tmp_path, wanted)
    assert str(tmp_path) in str(refusal.value)
    assert all(reason in str(refusal.value) for reason in differences(BUILT, wanted))


def test_without_a_manifest_nothing_counts_as_built(tmp_path: Path) -> None:
    (tmp_path / "flow.engine").write_bytes(b"half an engine")
    (reason,) = stale_reasons(tmp_path, BUILT)
    assert "manifest.json is missing" in reason
    with pytest.raises(EngineFileError, match=r"manifest\.json is missing"):
        require_current(tmp_path, BUILT)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"sources": {}, "tools": {}, "gpu": "", "compute_capability": "", "options": {}, "more": 1}',
        b'{"sources": {"a": 1}, "tools": {}, "gpu": "", "compute_capability": "", "options": {}}',
        b'{"sources": {}, "tools": {}, "gpu": null, "compute_capability": "", "options": {}}',
        b'{"sources": {}, "tools": {}, "gpu": "", "compute_capability": "", "options": []}',
    ],
)
def test_a_damaged_manifest_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(EngineFileError, match=r"manifest\.json"):
        Manifest.read(tmp_path)


def test_file_hash_is_sha256_of_its_content(tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000  # more than one block
    path = tmp_path / "weights"
    path.write_bytes(content)
    assert sha256_of(path) == hashlib.sha256(content).hexdigest()
