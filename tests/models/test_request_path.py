"""What a request passes in a real server is what docs/request.md says."""

from __future__ import annotations

import request_path
from measuring.machine import ROOT
from measuring.marked import differences

DRIFT = 0.02
"""Of counts, for a function that runs only on a busy machine; below 50 they are exact."""


def test_page_says_what_a_request_passes():
    wrong = differences(request_path.PAGE, request_path.MARK, request_path.measure(), DRIFT)
    assert wrong == [], "benchmarks/request_path.py --write puts this into docs/request.md"


def test_networks_are_folders_of_the_library():
    folders = {path.name for path in (ROOT / "cosyvoice_runtime").iterdir() if path.is_dir()}
    assert set(request_path.NETWORKS) - folders == set()
