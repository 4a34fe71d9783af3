"""What benchmarks/cpu.py reads of processes and makes of its rounds."""

from __future__ import annotations

import subprocess
import sys

import pytest

import cpu
from measuring.server_processes import cpu_seconds, descendants, memory_by_process

MIB = 2**20
CHILD = f"memory = bytearray(b'1' * (64 * {MIB})); print('up', flush=True); input()"
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(child.stdout.readline().decode(), child.pid, flush=True)
input()
child.communicate(b'\\n')
"""


@pytest.fixture
def family():
    """A process that has a process with 64 MiB; their ids."""
    command = [sys.executable, "-c", PARENT, CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "up\n"
        yield parent.pid, int(parent.stdout.readline())
        parent.communicate("\n")


def test_processes_of_a_server_are_those_that_it_started_and_their_own(family):
    assert {process.pid for process in descendants(family[0])} == set(family)


def test_memory_is_that_of_each_process(family):
    [held] = memory_by_process(family[1]).values()
    assert 64 <= held["pss"] <= held["rss"] < 200
    assert held["pss"] <= held["most"] < 250


def test_computing_time_of_a_process_grows_while_it_computes():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        [busy] = descendants(process.pid)
        while cpu_seconds(busy) < 0.2:
            assert process.poll() is None
        process.kill()


def test_variant_is_a_name_with_settings():
    variant = cpu.Variant.read("own:process=own,token2wav.ode_steps=6")
    assert variant.settings == ("process=own", "token2wav.ode_steps=6")
    assert variant.environment == {"COSYVOICE_PROCESS": "own", "COSYVOICE_TOKEN2WAV__ODE_STEPS": "6"}
    assert cpu.Variant.read("two:device=cpu,cpu,threads=1").settings == ("device=cpu,cpu", "threads=1")
    with pytest.raises(ValueError, match="a b"):
        cpu.Variant.read("a b:process=own")


def level(clients: int, ttfb_ms: float) -> cpu.Level:
    figures = {"rtf": 0.5, "audio_s_per_s": 2.0, "continuous_share": 1.0, "cpu_s": 3.0, "audio_s": 6.0}
    return {"clients": clients, "ttfb_ms": {"p50": ttfb_ms, "p95": ttfb_ms}, **figures}


def test_report_shows_medians_of_the_rounds_and_the_memory_of_all_processes():
    one = {
        "variant": "default",
        "demo_start_to_first_audio_s": [20.0, 10.0, 11.0],
        "start_s": 9.0,
        "start_cpu_s": 12.0,
        "memory_mib": {
            "token2wav": {"pss": 500.0, "rss": 600.0, "most": 700.0},
            "supervisor": {"pss": 40.0, "rss": 70.0, "most": 41.0},
        },
        "levels": [level(1, 300.0), level(1, 900.0), level(1, 310.0), level(4, 700.0)],
    }
    report = {
        "time": "now",
        "commit": "0",
        "command": "cpu.py",
        "checkpoint": "demo_voice",
        "machine": {"cpu": "a CPU", "cores": 2},
        "variants": [one],
    }
    text = cpu.markdown(report)
    assert "| ./run.sh demo: start to first audio, s | 11.0 |" in text
    assert "| 1 client: TTFB p50 ms | 310 |" in text
    assert "| 4 clients: CPU s for a second of audio | 0.5 |" in text
    assert "| all | 540 (741) |" in text
