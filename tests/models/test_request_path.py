"""What a request passes in a real server is what docs/request.md says."""

from __future__ import annotations

import re

import request_path
from measuring.machine import ROOT
from measuring.marked import differences

DRIFT = 0.02
"""Of counts, for a function that runs only on a busy machine; below 50 they are exact."""


HAND_OFFS = re.compile(r"handed on (\d+) times")
EXTRA = 2
"""Threads that may come between on a busy machine."""


def test_page_says_what_a_request_passes():
    found = request_path.measure()
    wrong = differences(request_path.PAGE, request_path.MARK, found, DRIFT)
    told = "benchmarks/request_path.py --write puts this into docs/request.md"
    assert [each for each in wrong if not HAND_OFFS.search(each)] == [], told
    said, seen = (int(HAND_OFFS.findall(text)[0]) for text in (request_path.PAGE.read_text(), found))
    assert abs(said - seen) <= EXTRA, told


def test_networks_are_folders_of_the_library():
    folders = {path.name for path in (ROOT / "cosyvoice_runtime").iterdir() if path.is_dir()}
    assert {name.rstrip(".") for name in request_path.NETWORKS} - folders == set()
