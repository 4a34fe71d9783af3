"""Which GPUs of a machine get a server, by the settings and by the models' devices."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from leftovers import leftovers

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.supervisor.places import ServerPlace, places_of
from eventually import eventually

ALL = ("all",)
VISIBLE = "CUDA_VISIBLE_DEVICES"
PORTS = ("http_port=0", "grpc_port=0", "metrics_port=0", "model_metrics_port=0")


def rendered(repository: Path, count: str, chain: str = "cpu") -> Path:
    """The repository of the test models, whose configurations name these devices."""
    for model, device in (("count", count), ("chain", chain)):
        with (repository / model / "config.pbtxt").open("a") as file:
            file.write(f'parameters {{ key: "device" value: {{ string_value: "{device}" }} }}\n')
    return repository


def seen(repository: Path, visible: str, *chosen: str) -> list[tuple[str, str | None]]:
    """Name and GPU of each place."""
    places = places_of(chosen or ALL, repository, {VISIBLE: visible})
    assert {place.servers for place in places} == {len(places)}
    return [(place.name, place.variables.get(VISIBLE)) for place in places]


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_each_gpu_gets_a_server(repository, device):
    assert seen(rendered(repository, device, "cuda"), "0,2,5") == [
        ("server 1 (GPU 0)", "0"),
        ("server 2 (GPU 2)", "2"),
        ("server 3 (GPU 5)", "5"),
    ]


@pytest.mark.parametrize("visible", ["", "0"])
def test_one_gpu_or_none_changes_nothing(repository, visible):
    assert places_of(ALL, rendered(repository, "cuda"), {VISIBLE: visible}) == [ServerPlace()]


@pytest.mark.parametrize("devices", [("cpu", "cpu"), ("cuda:1", "cuda:1"), ("cuda:1", "cpu")])
def test_models_on_a_cpu_or_on_a_gpu_of_their_own_are_one_server(repository, devices):
    repository = rendered(repository, *devices)
    assert places_of(ALL, repository, {VISIBLE: "0,1"}) == [ServerPlace()]
    with pytest.raises(InvalidInput, match=r"server\.gpus: '0' .*all is expected, because the models of"):
        places_of(("0",), repository, {VISIBLE: "0,1"})


def test_chosen_gpus_get_the_servers(repository):
    repository = rendered(repository, "cuda")
    assert seen(repository, "0,1,2", "2", "0") == [("server 1 (GPU 2)", "2"), ("server 2 (GPU 0)", "0")]
    assert seen(repository, "0,1,2", "1") == [("", "1")]


@pytest.mark.parametrize("chosen", [("3",), ("0", "0"), ("0", "x"), ()])
def test_gpu_that_is_not_there_is_refused_with_those_that_are(repository, chosen):
    with pytest.raises(InvalidInput, match=r"server\.gpus: .*all, or some of 0, GPU-4fa6, which are here"):
        places_of(chosen, rendered(repository, "cuda"), {VISIBLE: "0,GPU-4fa6"})


def test_command_runs_a_server_for_each_gpu_and_leaves_nothing(repository, tmp_path):
    output = tmp_path / "supervisor.log"
    settings = ["entry_models=chain", "open_models=*", *PORTS, f"log_file={tmp_path / 'tritonserver.log'}"]
    command = [sys.executable, "-m", "cosyvoice_runtime.supervisor", rendered(repository, "cuda"), *settings]
    with output.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, env=os.environ | {VISIBLE: "0,1"}
        )
    try:
        eventually(lambda: process.poll() is not None or "all 2 servers answer" in output.read_text())
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 0, output.read_text()
    finally:
        process.kill()
        process.wait()
    assert "server 2 (GPU 1): server stopped, every request answered" in output.read_text()
    assert leftovers(process.pid) == []


def test_command_says_which_gpus_are_there(repository, tmp_path):
    settings = ["gpus=7", *PORTS, f"log_file={tmp_path / 'tritonserver.log'}"]
    command = [sys.executable, "-m", "cosyvoice_runtime.supervisor", rendered(repository, "cuda"), *settings]
    told = subprocess.run(command, capture_output=True, text=True, env=os.environ | {VISIBLE: "0,1"})
    assert told.returncode == 2
    assert "server.gpus: '7' is not accepted; all, or some of 0, 1, which are here" in told.stderr
