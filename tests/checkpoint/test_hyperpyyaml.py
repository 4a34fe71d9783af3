from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cosyvoice_runtime.checkpoint import hyperpyyaml
from cosyvoice_runtime.checkpoint.hyperpyyaml import Resolver, Tagged, YamlReference
from cosyvoice_runtime.errors import CheckpointError


def read(tmp_path: Path, text: str) -> dict[str, Any]:
    path = tmp_path / "some.yaml"
    path.write_text(text, encoding="utf-8")
    return hyperpyyaml.read(path)


def resolved(tmp_path: Path, text: str, key: str = "x") -> Any:
    tree = read(tmp_path, text)
    return Resolver(tree).resolve(tree[key])


def test_tags_are_data(tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    tree = read(
        tmp_path,
        f"""
a: !apply:os.system ["touch {proof}"]
b: !new:subprocess.Popen
    args: ["touch", "{proof}"]
c: !name:os.remove
d: !module:os
e: !strange [1, 2]
""",
    )
    assert tree == {
        "a": Tagged("!apply:os.system", [f"touch {proof}"]),
        "b": Tagged("!new:subprocess.Popen", {"args": ["touch", str(proof)]}),
        "c": Tagged("!name:os.remove", ""),
        "d": Tagged("!module:os", ""),
        "e": Tagged("!strange", [1, 2]),
    }
    assert not proof.exists()


def test_python_objects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"some\.yaml: .*python/object"):
        read(tmp_path, "a: !!python/object/apply:os.system ['true']")


@pytest.mark.parametrize(
    "value",
    ["2024-99-99", "!!int abc", "!!int ''", "!!float abc", "!!bool abc", "!!timestamp abc", "!!binary a"],
)
def test_value_that_is_none_of_its_type_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(CheckpointError, match=r"some\.yaml: not a readable configuration"):
        read(tmp_path, f"x: {value}")


def test_class_name_is_the_last_component() -> None:
    assert Tagged("!new:cosyvoice.llm.llm.Qwen2LM", {}).class_name == "Qwen2LM"


@pytest.mark.parametrize(("text", "value"), [("1e-06", 1e-6), ("1.5E3", 1500.0), ("-2e4", -2e4), ("7", 7)])
def test_numbers_are_numbers(tmp_path: Path, text: str, value: float) -> None:
    assert read(tmp_path, f"x: {text}") == {"x": value}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("<rate>", 25),
        ("<rate> * <ratio>", 50),
        ("<rate>*<ratio>+1", 51),
        ("(<rate> - 1) // 2", 12),
        ("-<rate> / 2", -12.5),
        ("<alias>", 25),
    ],
)
def test_reference_takes_the_value(tmp_path: Path, expression: str, value: float) -> None:
    head = "rate: 25\nratio: 2\nalias: !ref <rate>\n"
    assert resolved(tmp_path, f"{head}x: !new:a.B\n  size: !ref {expression}") == Tagged(
        "!new:a.B", {"size": value}
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x: !ref <nothing>", "<nothing>: no such key"),
        ("x: !ref <x>", "<x>: refers to itself"),
        ("x: !ref <y>\ny: !ref <x> + 1", "refers to itself"),
        ("x: !ref <y>\ny: [1, 2]", "<y>: only numbers and text"),
        ("x: !ref <y>\ny: !new:a.B\n  c: 1", "<y>: only numbers and text"),
        ("x: !ref <y> ** 99\ny: 9", "cannot be evaluated"),
        ("x: !ref <y> * __import__('os')\ny: 9", "cannot be evaluated"),
        ("x: !ref <y> / 0\ny: 9", "cannot be evaluated"),
        ("x: !ref <y> * <y>\ny: 9999999", "cannot be evaluated"),
    ],
)
def test_bad_reference_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message.replace("*", r"\*")):
        resolved(tmp_path, text)


def test_long_chain_of_references_costs_one_visit_each(tmp_path: Path) -> None:
    chain = "\n".join(f"k{i}: !ref <k{i + 1}> + <k{i + 1}> - <k{i + 1}>" for i in range(60))
    assert resolved(tmp_path, f"{chain}\nk60: 3", "k0") == 3


def test_aliases_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="aliases are not accepted"):
        read(tmp_path, "a: &a [1, 1]\nb: [*a, *a]")


def test_oversized_file_is_refused_unread(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"larger than {hyperpyyaml.MAX_BYTES} bytes"):
        read(tmp_path, "#" * (hyperpyyaml.MAX_BYTES + 1))


@pytest.mark.parametrize("text", ["a: [1", "- 1\n- 2", "just text", "", "[" * 5000])
def test_what_is_no_configuration_names_the_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(CheckpointError, match=r"some\.yaml: "):
        read(tmp_path, text)


def test_binary_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "some.yaml").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(CheckpointError, match=r"some\.yaml: "):
        hyperpyyaml.read(tmp_path / "some.yaml")


def test_written_tree_is_read_back(tmp_path: Path) -> None:
    shared = [1, 2]
    tree = {
        "a": Tagged("!new:a.B", {"size": YamlReference("<c> * 2"), "b": 1e-6}),
        "c": 3,
        "d": shared,
        "e": shared,
    }
    hyperpyyaml.write(tmp_path / "some.yaml", tree)
    assert hyperpyyaml.read(tmp_path / "some.yaml") == tree
