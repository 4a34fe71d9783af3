"""The commands, run as a user runs them."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import wave
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile

from cosyvoice_client import AudioChunk, RefusedError, g711
from cosyvoice_client.delivery import deliver, found
from cosyvoice_client.pcm import pcm16
from cosyvoice_client.resampler import StreamResampler
from eventually import eventually
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


def with_player(folder, script):
    """An environment in which aplay is this script."""
    player = folder / "aplay"
    player.write_text(f"#!/bin/sh\n{script}\n")
    player.chmod(0o755)
    return os.environ | {"PATH": f"{folder}:/usr/bin:/bin"}


@pytest.fixture
def interruptible():
    """Whatever a shell runs in the background ignores interrupts, and so do its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def read_to(process, moment):
    while moment not in (line := process.stderr.readline()):
        assert line, "the command has ended"


@pytest.mark.parametrize("name", ["a.wav", "a.flac"])
def test_streamed_file_holds_every_chunk(server, tmp_path, name):
    done = speak(server, "id=4 chunks=5 pause_ms=10", "-o", tmp_path / name)
    assert done.returncode == 0
    assert np.array_equal(samples(tmp_path / name), coded(4, 5))
    assert b"chunk   5" in done.stderr
    assert b"first chunk after" in done.stderr


@pytest.mark.parametrize("program", ["grpc_client.py", "http_client.py"])
@pytest.mark.parametrize(
    ("name", "arguments", "rate"),
    [
        ("a.wav", ["--sample-rate", "8000"], 8_000),
        ("a.raw", ["--sample-rate", "16000"], 16_000),
        ("a.ulaw", [], 8_000),
        ("a.alaw", ["--sample-rate", "8000"], 8_000),
    ],
)
def test_file_of_a_telephone_holds_the_speech_resampled(server, tmp_path, program, name, arguments, rate):
    url = server.grpc_url if program == "grpc_client.py" else server.http_url
    target = tmp_path / name
    done = command(program, "--url", url, "--text", "id=4 chunks=5", "-o", target, *arguments)
    assert done.returncode == 0, done.stderr
    resampler = StreamResampler(24_000, rate)
    spoken = np.float32(coded(4, 5) / 32768)
    expected = pcm16(np.concatenate([resampler.push(spoken), resampler.finish()]))
    if name == "a.wav":
        assert soundfile.info(target).samplerate == rate
        assert np.array_equal(samples(target), expected)
    else:
        law = {"a.ulaw": "ulaw", "a.alaw": "alaw"}.get(name)
        assert target.read_bytes() == (g711.encode(law, expected) if law else expected.tobytes())


@pytest.mark.parametrize("timeout", ["0", "-1", "nan", "inf"])
def test_timeout_that_is_none_is_refused_before_anything_is_sent(timeout):
    done = command("grpc_client.py", "--text", "Hello.", "--url", NOWHERE, "--timeout", timeout)
    assert done.returncode == 2
    assert f"--timeout: {timeout} is no time of more than 0 seconds" in done.stderr.decode()


@pytest.mark.parametrize(("name", "rate", "own"), [("a.ulaw", 16_000, 8_000), ("a.opus", 44_100, 48_000)])
def test_rate_that_a_file_can_not_have_is_refused_before_anything_is_sent(tmp_path, name, rate, own):
    arguments = ["--text", "Hello.", "--url", NOWHERE, "-o", tmp_path / name, "--sample-rate", str(rate)]
    done = command("grpc_client.py", *arguments)
    assert done.returncode == 2
    assert f"--sample-rate: {rate} is not {own}, which {tmp_path / name} can have" in done.stderr.decode()


def test_standard_output_holds_nothing_but_samples(server):
    done = speak(server, "-", "-o", "-", "--quiet", input=b"id=6 chunks=3")
    assert np.array_equal(np.frombuffer(done.stdout, "<i2"), coded(6, 3))
    assert done.stderr == b""


def test_lines_of_a_pipe_are_one_recording(server, tmp_path):
    lines = "id=4 chunks=2\n\n   \n* * *\n—🙂\nid=5 chunks=3\n".encode()
    for program, url in (("grpc_client.py", server.grpc_url), ("http_client.py", server.http_url)):
        done = command(program, "--url", url, "--text", "-", "-o", tmp_path / "a.wav", input=lines)
        assert done.returncode == 0
        assert np.array_equal(samples(tmp_path / "a.wav"), np.concatenate([coded(4, 2), coded(5, 3)]))


def test_line_is_spoken_before_the_next_one_comes(server):
    line = [sys.executable, CLIENT / "grpc_client.py", "--url", server.grpc_url, "--text", "-", "-o", "-"]
    with subprocess.Popen([*line, "--quiet"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for number in (2, 3):
            process.stdin.write(f"id={number} chunks=2\n".encode())
            process.stdin.flush()
            heard = process.stdout.read(len(coded(number, 2)) * 2)
            assert np.array_equal(np.frombuffer(heard, "<i2"), coded(number, 2))
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize("program", ["grpc_client.py", "http_client.py"])
def test_failure_names_the_line_and_keeps_what_was_spoken(server, tmp_path, program):
    url = server.grpc_url if program == "grpc_client.py" else server.http_url
    lines = b"id=4 chunks=2\n\nfail=INVALID_ARGUMENT\nid=5 chunks=3\n"
    arguments = ["--url", url, "--text", "-", "-o", tmp_path / "a.wav", "--quiet"]
    done = command(program, *arguments, input=lines)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: line 3: ")
    assert b"told to fail" in done.stderr
    assert np.array_equal(samples(tmp_path / "a.wav"), coded(4, 2))


def test_speech_that_has_stalled_is_an_error_behind_its_samples(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"One.\nTwo.\n")))
    output = str(tmp_path / "a.wav")
    options = SimpleNamespace(text="-", output=output, sample_rate=None, play=False, quiet=True)
    stalled = [AudioChunk(np.ones(2400, np.float32), 0.0, reason) for reason in ("incomplete", "")]
    with pytest.raises(RefusedError, match="line 1: the speech has stalled amid its text"):
        deliver(options, lambda text: stalled)
    assert len(samples(tmp_path / "a.wav")) == 4800


@pytest.mark.parametrize("lines", [b"", b"\n \n", b"***\n"])
def test_pipe_without_a_text_is_an_error(server, tmp_path, lines):
    done = speak(server, "-", input=lines, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, b"error: standard input: no line has a text\n")


def test_line_that_is_no_text_is_named(server, tmp_path):
    done = speak(server, "-", "--quiet", input=b"id=4 chunks=2\n\xff\xfe\n", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, b"error: line 2: valid UTF-8 is expected\n")


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
        read_to(process, b"chunk   3")
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
        read_to(process, b"chunk   3")
        process.kill()
    kept = samples(tmp_path / "a.wav")
    assert len(kept) >= 3 * 2400
    assert np.array_equal(kept, coded(2, len(kept) // 2400 + 1)[: len(kept)])
    server.wait_until(lambda now: now["active"] == 0)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--url", NOWHERE], 3, b"Connection refused"),
        (["--url", "localhost:"], 2, b"localhost:: host:port, "),
        (["--text", "fail=UNAVAILABLE"], 3, b"told to fail"),
        (["--text", "fail=INVALID_ARGUMENT"], 1, b"told to fail"),
        (["--text", "chunks=0"], 1, b"no audio"),
        (["--text", "pause_ms=60000", "--timeout", "2"], 4, b"nothing came for 2 s"),
        (["-o", "a.txt"], 2, b"expected a name ending in one of .wav"),
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
    environment = with_player(tmp_path, f'echo "$@" > {tmp_path}/arguments\nexec cat > {tmp_path}/played')
    done = speak(server, "id=3 chunks=4", "--play", env=environment, cwd=tmp_path)
    assert b"playing through aplay" in done.stderr
    assert np.array_equal(np.frombuffer((tmp_path / "played").read_bytes(), "<i2"), coded(3, 4))
    assert "-r 24000" in (tmp_path / "arguments").read_text()
    assert not (tmp_path / "speech.wav").exists()


@without_sounddevice
@pytest.mark.parametrize("program", ["grpc_client.py", "http_client.py"])
def test_file_and_player_have_the_rate_that_the_server_says(server, tmp_path, program):
    script = f'echo "$@" >> {tmp_path}/arguments\nexec cat >> {tmp_path}/played'
    url = server.grpc_url if program == "grpc_client.py" else server.http_url
    done = command(
        program,
        *("--url", url, "--text", "id=3 chunks=4 rate=22050", "--play", "-o", tmp_path / "a.wav"),
        env=with_player(tmp_path, script),
    )
    assert done.returncode == 0
    assert b"0.44 s of speech" in done.stderr  # 9600 samples
    with wave.open(str(tmp_path / "a.wav")) as file:
        assert (file.getframerate(), file.getnframes()) == (22_050, 9600)
    assert "-r 22050" in (tmp_path / "arguments").read_text().splitlines()[-1]
    assert np.array_equal(np.frombuffer((tmp_path / "played").read_bytes(), "<i2"), coded(3, 4))


@without_sounddevice
def test_file_and_player_get_the_same(server, tmp_path):
    environment = with_player(tmp_path, f"exec cat > {tmp_path}/played")
    done = command(
        "http_client.py",
        *("--url", server.http_url, "--text", "id=3 chunks=4", "--play", "-o", tmp_path / "a.wav"),
        env=environment,
    )
    assert done.returncode == 0
    assert np.array_equal(np.frombuffer((tmp_path / "played").read_bytes(), "<i2"), coded(3, 4))
    assert np.array_equal(samples(tmp_path / "a.wav"), coded(3, 4))


@without_sounddevice
@pytest.mark.parametrize("reads", ["cat > /dev/null; ", ""], ids=["at the end", "at once"])
def test_player_that_fails_is_told_in_its_own_words(server, tmp_path, reads):
    script = f"{reads}echo 'audio open error: No such device' >&2; exit 1"
    environment = with_player(tmp_path, script)
    done = speak(server, "-", "--play", "--quiet", env=environment, input=b"id=3 chunks=40\n")
    assert done.returncode == 2
    assert done.stderr == b"error: aplay can't play here: audio open error: No such device\n"


@without_sounddevice
@pytest.mark.parametrize(
    ("chunks", "moment"), [(6000, b"chunk   3"), (3, b"first chunk after")], ids=["amid", "at the end"]
)
def test_interrupt_silences_the_player(server, tmp_path, interruptible, chunks, moment):
    environment = with_player(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 600")
    line = [sys.executable, CLIENT / "grpc_client.py", "--url", server.grpc_url, "--play"]
    line += ["--text", f"id=2 chunks={chunks} pause_ms=20"]
    with subprocess.Popen(line, stderr=subprocess.PIPE, env=environment) as process:
        read_to(process, moment)
        pid = tmp_path / "pid"
        eventually(lambda: pid.is_file() and pid.read_text().endswith("\n"))
        process.send_signal(signal.SIGINT)
        assert b"stopped" in process.stderr.read()
    assert process.returncode == 130
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


@without_sounddevice
def test_play_without_a_player_says_what_to_install(server, tmp_path):
    done = speak(server, "hello", "--play", env=os.environ | {"PATH": str(tmp_path)})
    assert done.returncode == 2
    assert b"install the Python package sounddevice, aplay (of alsa-utils) or ffplay" in done.stderr


def test_script_is_sent_as_turns_of_one_request(server, tmp_path):
    (tmp_path / "script").write_text("anna: Hello.\nben: Hi.\n")
    for program, url, model in (
        ("grpc_client.py", server.grpc_url, "cosyvoice2"),
        ("http_client.py", server.http_url, "cosyvoice2_offline"),
    ):
        script = ["--script", tmp_path / "script", "--turn-pause", "0.5", "-o", tmp_path / "a.wav"]
        done = command(program, "--url", url, *script)
        assert done.returncode == 0, done.stderr
        sent = {name: told["first"] for name, told in server.report(model)["inputs"].items()}
        turns = [{"voice": "anna", "text": "Hello."}, {"voice": "ben", "text": "Hi."}]
        assert json.loads(sent["turns"]) == turns
        assert sent["turn_pause_s"] == 0.5
        assert sent["target_text"] == ""


def test_pause_between_turns_is_of_no_use_without_a_script():
    done = command("grpc_client.py", "--url", NOWHERE, "--text", "Hello.", "--turn-pause", "0.5")
    assert (done.returncode, done.stderr) == (2, b"error: --turn-pause: it is of no use without --script\n")


@pytest.mark.parametrize(("written", "named"), [("Hello.", b"line 1"), ("", b"has no turn")])
def test_script_that_is_none_is_refused_before_anything_is_sent(tmp_path, written, named):
    (tmp_path / "script").write_text(written)
    done = command("grpc_client.py", "--url", NOWHERE, "--script", tmp_path / "script")
    assert done.returncode == 2
    assert named in done.stderr


@pytest.mark.parametrize("program", ["grpc_client.py", "http_client.py"])
def test_words_are_written_beside_the_speech(server, tmp_path, program):
    url = server.grpc_url if program == "grpc_client.py" else server.http_url
    files = [tmp_path / name for name in ("a.json", "a.srt", "a.vtt")]
    named = zip(("--words", "--srt", "--vtt"), files, strict=True)
    options = ["--url", url, "-o", tmp_path / "a.wav", *(each for pair in named for each in pair)]
    lines = b"chunks=2 by=estimate\nid=0 chunks=1 by=estimate\n"
    done = command(program, *options, "--text", "-", input=lines)
    assert done.returncode == 0, done.stderr
    assert b"word times are an estimate" in done.stderr
    content = json.loads(files[0].read_text())
    times = [("0", 0.0, 0.09), ("1", 0.1, 0.19), ("0", 0.2, 0.29)]
    assert content["method"] == "estimate"
    assert [(word["word"], word["start"], word["end"]) for word in content["words"]] == times
    assert files[1].read_text().startswith("1\n00:00:00,000 --> 00:00:00,")
    assert files[2].read_text().startswith("WEBVTT")


def test_words_of_a_script_are_those_of_its_turns(server, tmp_path):
    script = tmp_path / "talk.txt"
    script.write_text("anna: by=attention\nben: chunks=2\n")
    files = ["--srt", tmp_path / "a.srt", "-o", tmp_path / "a.wav"]
    done = command("grpc_client.py", "--url", server.grpc_url, "--script", script, *files)
    assert done.returncode == 1
    assert b"the server told none" in done.stderr
    inputs = server.report()["inputs"]
    assert inputs["words"] == {"dtype": "bool", "shape": [1, 1], "first": 1.0}


@pytest.mark.parametrize("program", ["grpc_client.py", "http_client.py"])
def test_what_is_found_wrong_is_told(server, tmp_path, program):
    is_stream = program == "grpc_client.py"
    url, model = (server.grpc_url, "cosyvoice2") if is_stream else (server.http_url, "cosyvoice2_offline")
    line = ["--url", url, "-o", tmp_path / "a.wav", "--text", "chunks=2 wrong=Dr.", "--verify", "retry"]
    done = command(program, *line, "--paragraph-pause", "1", "--sentence-pause", "0.25")
    assert done.returncode == 0, done.stderr
    assert b"drawn again: 2\nskipped: 'Dr.', characters 6 to 9\n" in done.stderr
    sent = {name: told["first"] for name, told in server.report(model)["inputs"].items()}
    pauses = sent["paragraph_pause_s"], sent["sentence_pause_s"]
    assert (sent["verify"], *pauses) == ("retry", 1.0, 0.25)
    assert command(program, *line, "--quiet").stderr == b""


def test_speech_that_nothing_could_judge_is_not_called_right():
    unknown = {"checked": False, "redraws": 0, "findings": []}
    assert list(found(unknown)) == ["not verified: nothing was there to judge by"]
    assert list(found(unknown | {"checked": True})) == list(found(None)) == []


def test_speech_begins_at_a_character(server, tmp_path):
    done = speak(server, "chunks=1", "--start-character", "7", "-o", tmp_path / "a.wav")
    assert done.returncode == 0, done.stderr
    assert server.report()["inputs"]["start_character"]["first"] == 7


def test_place_of_captions_is_checked_before_anything_is_sent(tmp_path):
    done = command(
        "grpc_client.py", "--text", "Hello.", "--url", NOWHERE, "--vtt", tmp_path / "none" / "a.vtt"
    )
    assert done.returncode == 2
    assert b"expected a file in a folder that exists" in done.stderr
