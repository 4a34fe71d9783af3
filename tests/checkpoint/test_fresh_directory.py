from __future__ import annotations

from pathlib import Path

import pytest

from cosyvoice_runtime.checkpoint.fresh_directory import fresh_directory
from cosyvoice_runtime.errors import InvalidInput


def test_directory_appears_when_complete(tmp_path: Path) -> None:
    target = tmp_path / "new" / "target"
    with fresh_directory(target) as building:
        (building / "a").write_text("a")
        assert not target.exists()
    assert (target / "a").read_text() == "a"
    assert [path.name for path in target.parent.iterdir()] == ["target"]


def test_nothing_is_left_or_changed_after_an_error(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "old").touch()
    with pytest.raises(IsADirectoryError), fresh_directory(target, force=True) as building:
        building.write_text("fails")
    assert list(tmp_path.rglob("*")) == [target, target / "old"]


def test_files_in_the_way_are_kept_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    with pytest.raises(InvalidInput, match="is not empty"), fresh_directory(tmp_path):
        pass
    with (
        pytest.raises(InvalidInput, match="is not a directory"),
        fresh_directory(tmp_path / "old", force=True),
    ):
        pass
    assert (tmp_path / "old").exists()
    with fresh_directory(tmp_path, force=True) as building:
        (building / "a").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
