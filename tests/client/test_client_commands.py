"""The commands, run as a user runs them."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from fake_server import coded

CLIENT = Path(__file__).resolve().parents[2] / "client"
NOWHERE = "127.0.0.1:1"
without_sounddevice = pytest.mark.skipif(
    importlib.util.find_spec("sounddevice") is not None, reason="sounddevice comes before all other players"
)


def command(program, *arguments, **options):
    line = [sys.executable, CLIENT / program, *arguments]
    return subprocess.run(line, capture_output=True, timeout=600, **options)


def speak(server, text, *arguments, **options):
    return command("grpc_client.py", "--url", server.grpc_url, "--text", text, *arguments, **options)


def samples(path):
    return soundfile.read(path, dtype="int16")[0]


@pytest.fixture
def interruptible():
    """Whatever a shell runs in the background ignores interrupts, and so do its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def read_to_third_chunk(process):
    while b"chunk   3" not in (line := process.stderr.readline()):
        assert line, "the command has ended"


@pytest.mark.parametrize("name", ["a.wav", "a.flac"])
def test_streamed_file_holds_every_chunk(server, tmp_path, name):
    done = speak(server, "id=4 chunks=5 pause_ms=10", "-o", tmp_path / name)
    assert done.returncode == 0
    assert np.array_equal(samples(tmp_path / name), coded(4, 5))
    assert b"chunk   5" in done.stderr
    assert b"first chunk after" in done.stderr


def test_standard_output_holds_nothing_but_samples(server):
    done = speak(server, "-", "-o", "-", "--quiet", input=b"id=6 chunks=3")
    assert np.array_equal(np.frombuffer(done.stdout, "<i2"), coded(6, 3))
    assert done.stderr == b""


def test_http_command_speaks(server, tmp_path):
    done = command(
        "http_client.py",
        *("--server-url", server.http_url, "--target-text", "id=8 chunks=2"),
        *("--output-audio", tmp_path / "a.wav"),
    )
    assert done.returncode == 0
    assert np.array_equal(samples(tmp_path / "a.wav"), coded(8, 2))


def test_interrupt_leaves_a_valid_file_and_cancels(server, tmp_path, interruptible):
    before = server.report()["cancelled"]
    line = [sys.executable, CLIENT / "grpc_client.py", "--url", server.grpc_url]
    line += ["--text", "id=2 chunks=6000 pause_ms=20", "-o", tmp_path / "a.flac"]
    with subprocess.Popen(line, stderr=subprocess.PIPE) as process:
        read_to_third_chunk(process)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert b"stopped" in rest
    assert b"Traceback" not in rest
    kept = samples(tmp_path / "a.flac")
    assert len(kept) >= 3 * 2400
    assert np.array_equal(kept, coded(2, len(kept) // 2400))
    server.wait_until(lambda now: now["cancelled"] == before + 1)


def test_killed_client_leaves_a_valid_wav(server, tmp_path):
    line = [sys.executable, CLIENT / "grpc_client.py", "--url", server.grpc_url]
    line += ["--text", "id=2 chunks=6000 pause_ms=20", "-o", tmp_path / "a.wav"]
    with subprocess.Popen(line, stderr=subprocess.PIPE) as process:
        read_to_third_chunk(process)
        process.kill()
    kept = samples(tmp_path / "a.wav")
    assert len(kept) >= 3 * 2400
    assert np.array_equal(kept, coded(2, len(kept) // 2400 + 1)[: len(kept)])
    server.wait_until(lambda now: now["active"] == 0)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--url", NOWHERE], 3, b"Connection refused"),
        (["--text", "fail=UNAVAILABLE"], 3, b"told to fail"),
        (["--text", "fail=INVALID_ARGUMENT"], 1, b"told to fail"),
        (["--text", "chunks=0"], 1, b"no audio"),
        (["--text", "pause_ms=60000", "--timeout", "2"], 4, b"nothing came for 2 s"),
        (["-o", "a.mp3"], 2, b"expected a name ending in .wav"),
        (["--reference", "none.wav"], 2, b"no such file"),
        (["--reference-text", "words"], 2, b"no use without --reference"),
    ],
)
def test_failure_has_its_exit_code_and_one_line(server, tmp_path, arguments, code, words):
    (tmp_path / "speech.wav").write_bytes(b"an older recording")
    done = speak(server, "hello", *arguments, cwd=tmp_path)
    assert done.returncode == code
    assert words in done.stderr
    assert done.stderr.startswith(b"error: ")
    assert done.stderr.count(b"\n") == 1
    assert (tmp_path / "speech.wav").read_bytes() == b"an older recording"


@without_sounddevice
def test_play_pipes_to_the_player_found(server, tmp_path):
    player = tmp_path / "aplay"
    player.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\nexec cat > {tmp_path}/played\n')
    player.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = speak(server, "id=3 chunks=4", "--play", env=environment, cwd=tmp_path)
    assert b"playing through aplay" in done.stderr
    assert np.array_equal(np.frombuffer((tmp_path / "played").read_bytes(), "<i2"), coded(3, 4))
    assert "-r 24000" in (tmp_path / "arguments").read_text()
    assert not (tmp_path / "speech.wav").exists()


@without_sounddevice
def test_play_without_a_player_says_what_to_install(server, tmp_path):
    done = speak(server, "hello", "--play", env=os.environ | {"PATH": str(tmp_path)})
    assert done.returncode == 2
    assert b"install the Python package sounddevice, aplay (of alsa-utils) or ffplay" in done.stderr
