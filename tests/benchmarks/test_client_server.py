"""The client-server benchmark against a real server with fake models."""

from __future__ import annotations

import json

import numpy as np
import pytest
import soundfile

import client_server
from measuring.workload import Utterance


def run(server, folder, *arguments):
    line = ["--url", server.grpc_url, "--output-dir", str(folder), "--no-plot", "--warmup", "1"]
    status = client_server.main([*line, *arguments])
    return status, json.loads((folder / "results.json").read_text())


def manifest(folder, *texts):
    lines = [f"utt{number}|||{text}" for number, text in enumerate(texts)]
    (folder / "set.txt").write_text("\n".join(lines))
    return ["--manifest", str(folder / "set.txt")]


def test_levels_are_measured_with_tritons_own_counters(server, tmp_path):
    status, report = run(
        server, tmp_path, "--concurrency", "1,3", "--rate", "50", "--arrivals", "constant", "--requests", "6"
    )
    assert status == 0
    assert [level.get("clients", level.get("rate")) for level in report["levels"]] == [1, 3, 50.0]
    for level in report["levels"]:
        assert level["figures"]["requests"] == len(level["samples"]) == 6
        assert level["figures"]["errors"] == {}
        assert level["triton"]["cosyvoice2"]["requests"] == 6
        assert level["figures"]["ttfb_ms"]["max"] <= level["figures"]["latency_ms"]["max"]
    assert report["server"] == {"name": "triton", "version": "2.51.0"}
    assert report["settings"]["requests"] == 6
    assert report["machine"]["cores"] > 0
    table = (tmp_path / "results.md").read_text()
    assert "| 3 clients | 6 | 0 |" in table
    assert "| 50/s constant | 6 | 0 |" in table


def test_audio_and_silences_are_those_the_server_made(server, tmp_path):
    texts = manifest(tmp_path, "chunks=3 samples=1200 pause_ms=3000")
    _, report = run(server, tmp_path, *texts, "--concurrency", "1", "--requests", "1", "--warmup", "0")
    [level] = report["levels"]
    assert level["figures"]["audio_s"] == 0.15
    assert level["figures"]["underruns"] == 2
    assert level["figures"]["continuous_share"] == 0.0
    assert level["figures"]["ttfb_ms"]["p50"] >= 3000


def test_errors_are_counted_by_kind(server, tmp_path):
    texts = manifest(tmp_path, "fail=UNAVAILABLE", "fail=INTERNAL fail_after=1 chunks=2", "chunks=0", "id=1")
    _, report = run(server, tmp_path, *texts, "--concurrency", "2", "--requests", "8", "--warmup", "0")
    figures = report["levels"][0]["figures"]
    assert figures["errors"] == {"unavailable": 2, "internal": 2, "no_audio": 2}
    assert figures["continuous_share"] == 0.25


def test_offline_mode_measures_whole_utterances(server, tmp_path):
    _, report = run(server, tmp_path, "--mode", "offline", "--concurrency", "2", "--requests", "4")
    [level] = report["levels"]
    assert level["triton"]["cosyvoice2_offline"]["requests"] == 4
    assert level["figures"]["gap_ms"] is None
    assert all(len(sample["arrivals"]) == 1 for sample in level["samples"])


def test_recordings_and_options_are_sent(server, tmp_path):
    soundfile.write(tmp_path / "a.wav", np.tile([0.5, -0.5], 12000), 24000)
    (tmp_path / "set.txt").write_text("one|words|a.wav|id=1\n")
    arguments = ["--manifest", str(tmp_path / "set.txt"), "--speed", "1.5"]
    run(server, tmp_path, *arguments, "--concurrency", "1", "--requests", "1")
    inputs = server.report()["inputs"]
    assert inputs["reference_wav"]["shape"] == [1, 16000]
    assert inputs["reference_text"]["first"] == "words"
    assert inputs["speed"]["first"] == 1.5


@pytest.mark.parametrize(("arguments", "words"), [([], None), (["--words"], True)])
def test_times_of_words_are_asked_for_on_demand(arguments, words):
    options = client_server.parse(arguments)
    assert client_server.request(options, Utterance("one", "Good morning.")).words is words


def test_plot_is_drawn(server, tmp_path):
    pytest.importorskip("matplotlib")
    line = ["--url", server.grpc_url, "--output-dir", str(tmp_path), "--concurrency", "1", "--requests", "1"]
    assert client_server.main([*line, "--plot"]) == 0
    assert (tmp_path / "results.png").read_bytes().startswith(b"\x89PNG")


def test_absent_server_is_an_error_with_its_exit_code(tmp_path, capsys):
    assert client_server.main(["--url", "127.0.0.1:1", "--output-dir", str(tmp_path)]) == 3
    assert capsys.readouterr().err.startswith("error: 127.0.0.1:1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [["--concurrency", "0"], ["--rate", "x"], ["--manifest", "a", "--split-name", "b"]]
)
def test_options_out_of_range_are_refused(arguments):
    with pytest.raises(SystemExit, match="2"):
        client_server.main(arguments)
