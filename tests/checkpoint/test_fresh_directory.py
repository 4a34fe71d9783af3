from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cosyvoice_runtime.checkpoint.fresh_directory import fresh_directory, renew_directory
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


def stale_until_written(target: Path) -> list[str]:
    return [] if (target / "complete").exists() else ["not complete"]


def test_writers_of_one_target_wait_and_find_it_written(tmp_path: Path) -> None:
    target = tmp_path / "target"
    written: list[Path] = []

    def write(building: Path) -> None:
        written.append(building)
        time.sleep(0.05)
        (building / "complete").touch()

    def renew(_: int) -> list[str]:
        return renew_directory(target, lambda: stale_until_written(target), write)

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(renew, range(8)))
    assert sorted(results) == [[]] * 7 + [["not complete"]]
    assert len(written) == 1
    assert list(tmp_path.rglob("*")) == [target, target / "complete"]


def test_writers_that_replace_a_target_in_any_case_take_turns(tmp_path: Path) -> None:
    target = tmp_path / "target"

    def replace(number: int) -> None:
        with fresh_directory(target, force=True) as building:
            assert not any(building.iterdir())
            (building / str(number)).touch()
            time.sleep(0.01)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(replace, range(16)))
    assert len(list(target.iterdir())) == 1
    assert list(tmp_path.iterdir()) == [target]


KILLED = """
import sys, time
from pathlib import Path
from cosyvoice_runtime.checkpoint.fresh_directory import fresh_directory
with fresh_directory(Path(sys.argv[1])) as building:
    (building / "half").touch()
    print("inside", flush=True)
    time.sleep(60)
"""


def test_what_a_killed_writer_leaves_is_in_nobodys_way(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with subprocess.Popen([sys.executable, "-c", KILLED, target], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"inside\n"
        process.send_signal(signal.SIGKILL)
    assert len(list(tmp_path.iterdir())) == 2
    with fresh_directory(target) as building:
        (building / "complete").touch()
    assert list(tmp_path.rglob("*")) == [target, target / "complete"]


def test_current_directory_is_found_where_nothing_can_be_written(tmp_path: Path) -> None:
    def write(building: Path) -> None:
        raise AssertionError(building)

    assert renew_directory(tmp_path / "absent" / "target", list, write) == []
    assert not (tmp_path / "absent").exists()


def test_directory_without_the_marker_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "mine").touch()
    with pytest.raises(InvalidInput, match="is not empty"):
        renew_directory(target, lambda: ["stale"], lambda _: None, "marker")
    assert (target / "mine").exists()
    (target / "marker").touch()
    assert renew_directory(target, lambda: ["stale"], lambda _: None, "marker") == ["stale"]
    assert list(tmp_path.rglob("*")) == [target]
