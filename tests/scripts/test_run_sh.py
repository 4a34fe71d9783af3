"""What run.sh starts, told by a python that only says how it was called.

It finds the server's address as the real one does where a test gives a port."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cosyvoice_runtime.families import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
INSTRUCTION = "You are a helpful assistant.<|endofprompt|>"
PYTHON = f"""#!/bin/sh
[ "$1$COSYVOICE_SERVER__GRPC_PORT" = "$1" ] || [ "$1" != scripts/server_address.py ] \\
    || {{ cd {ROOT} && exec {sys.executable} "$@"; }}
[ "$1" != scripts/usual_instruction.py ] || {{ [ ! -e "$2/cosyvoice3.yaml" ] || echo '{INSTRUCTION}'; exit; }}
echo "python $*"
"""


def served(checkpoint: Path) -> str:
    """What stage 2 writes into the configuration of a model of this checkpoint."""
    return (
        f'parameters {{ key: "checkpoint_dir" value: {{ string_value: {json.dumps(str(checkpoint))} }} }}\n'
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """run.sh alone, with all that its stages need, and a PATH whose python3 is the stand-in."""
    shutil.copy(ROOT / "run.sh", tmp_path)
    for file, text in {
        "bin/python3": PYTHON,
        "checkpoint/cosyvoice2.yaml": "",
        "build/cosyvoice2/config.pbtxt": served(tmp_path / "checkpoint"),
    }.items():
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text(text)
    (tmp_path / "bin/python3").chmod(0o755)
    (tmp_path / "checkpoint/spk2info.pt").touch()
    (tmp_path / "demo_voice").mkdir()
    (tmp_path / "demo_voice/reference.txt").write_text("The boat sailed.\n")
    return tmp_path


def run(checkout: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": f"{checkout / 'bin'}:{os.environ['PATH']}",
        "VENV": "system",
        "CHECKPOINT": "checkpoint",
        "MODEL_REPO": "build",
        **variables,
    }
    command = ["bash", "run.sh", *arguments]
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)


def called(checkout: Path, *arguments: str, **variables: str) -> list[str]:
    done = run(checkout, *arguments, **variables)
    assert done.returncode == 0, done.stderr
    return [line.removeprefix("python ") for line in done.stdout.splitlines() if line.startswith("python ")]


def test_stages_run_in_order_up_to_the_server(checkout):
    assert [line.split()[:2] for line in called(checkout, "0", "3")] == [
        ["scripts/fetch_checkpoint.py", "checkpoint"],
        ["scripts/build_engines.py", "checkpoint_dir=checkpoint"],
        ["scripts/render_model_repo.py", "--output"],
        ["-m", "cosyvoice_runtime.supervisor"],
    ]


@pytest.mark.parametrize(
    ("arguments", "program"),
    [
        (["4"], "client/grpc_client.py"),
        (["4", "4", "offline"], "client/http_client.py"),
        (["5"], "benchmarks/client_server.py"),
        (["6"], "benchmarks/offline_inference.py"),
    ],
)
def test_clients_and_benchmarks_run_alone(checkout, arguments, program):
    [line] = called(checkout, *arguments)
    assert line.split()[0] == program


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["4"], f"--text {INSTRUCTION}Hello, this is"),
        (["4", "4", "offline"], f"--text {INSTRUCTION}Hello, this is"),
        (["5"], f"--concurrency 1,2,4,8 --instruction {INSTRUCTION}"),
        (["5", "5", "streaming", "--instruct-text", "Whisper."], "1,2,4,8 --instruct-text Whisper."),
        (["4", "4", "streaming", "--instruct-text", "Whisper."], "--text Hello, this is"),
    ],
)
def test_what_cosyvoice3_needs_stands_before_the_texts(checkout, arguments, said):
    (checkout / "checkpoint/cosyvoice2.yaml").rename(checkout / "checkpoint/cosyvoice3.yaml")
    [line] = called(checkout, *arguments)
    assert said in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["4"], "--reference demo_voice/reference.flac --reference-text The boat sailed."),
        (["4", "4", "offline"], "--reference demo_voice/reference.flac --reference-text The boat sailed."),
        (["5"], "--reference demo_voice/reference.flac --reference-text The boat sailed."),
        (["6"], "--prompt-speech-path demo_voice/reference.flac --prompt-text The boat sailed."),
        (["4", "4", "streaming", "--voice", "anna"], "speech.wav --voice anna"),
        (["5", "5", "streaming", "--manifest", "set.txt"], "1,2,4,8 --manifest set.txt"),
    ],
)
def test_where_a_checkpoint_brings_no_voice_a_recording_is_spoken_like(checkout, arguments, said):
    assert not any("demo_voice" in line for line in called(checkout, *arguments))
    (checkout / "checkpoint/spk2info.pt").unlink()
    [line] = called(checkout, *arguments)
    assert said in line


def test_quick_tests_are_those_without_servers_and_what_is_slow(checkout):
    assert "not slow and not server" not in called(checkout, "test", "-x")[-1]
    assert called(checkout, "test", "--quick", "-x")[-1].endswith("-m not slow and not server and not gpu -x")


@pytest.mark.parametrize(
    ("family", "published"),
    [
        ("cosyvoice2", "CosyVoice2-0.5B"),
        ("cosyvoice3", "Fun-CosyVoice3-0.5B"),
        ("cosyvoice300m", "CosyVoice-300M"),
    ],
)
def test_family_is_fetched_to_a_directory_of_its_name(checkout, family, published):
    [line] = called(checkout, "0", FAMILY=family, CHECKPOINT="")
    assert line == f"scripts/fetch_checkpoint.py checkpoints/{published} --source auto --family {family}"


def test_revision_of_the_published_checkpoint_may_be_named(checkout):
    [line] = called(checkout, "0", REVISION="v1")
    assert line == "scripts/fetch_checkpoint.py checkpoint --source auto --family cosyvoice2 --revision v1"


@pytest.mark.parametrize("named", ["", "checkpoint"])
def test_checkpoint_of_the_settings_is_that_of_every_stage_unless_checkpoint_names_one(checkout, named):
    (checkout / "mine").symlink_to("checkpoint")
    lines = called(checkout, "0", "2", CHECKPOINT=named, COSYVOICE_CHECKPOINT_DIR="mine")
    directory = named or "mine"
    assert lines[0].startswith(f"scripts/fetch_checkpoint.py {directory} ")
    assert [line.split()[-1] for line in lines[1:]] == [f"checkpoint_dir={directory}"] * 2


@pytest.mark.parametrize("stage", ["1", "2", "6"])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_checkpoint_of_any_family_is_found(checkout, family, stage):
    (checkout / "checkpoint/cosyvoice2.yaml").rename(checkout / "checkpoint" / family.config_file)
    assert called(checkout, stage)


def test_check_is_of_the_checkpoint_that_is_named_or_here_and_else_of_the_demo_voice(checkout):
    spoken = "--reference demo_voice/reference.flac --reference-text The boat sailed."
    begun = f"-m cosyvoice_runtime.check {spoken} checkpoint_dir="
    assert called(checkout, "check", "device=cpu") == [f"{begun}checkpoint device=cpu"]
    (checkout / "demo_voice/cosyvoice2.yaml").touch()
    assert called(checkout, "check", CHECKPOINT="") == [f"{begun}demo_voice"]
    published = checkout / "checkpoints/CosyVoice2-0.5B"
    published.mkdir(parents=True)
    (published / "cosyvoice2.yaml").touch()
    assert called(checkout, "check", CHECKPOINT="") == [f"{begun}checkpoints/CosyVoice2-0.5B"]
    done = run(checkout, "check", CHECKPOINT="elsewhere")
    assert (done.returncode, done.stderr.count("elsewhere")) == (1, 1)


@pytest.mark.parametrize("name", ["a b", "a'b", 'a"b', "a&b", "a;touch made", "a`touch made`", "a%b", "a\\b"])
def test_any_other_sign_of_ascii_may_be_in_the_path(checkout, name):
    moved = checkout.rename(checkout.with_name(name))
    assert called(moved, "2") == ["scripts/render_model_repo.py --output build checkpoint_dir=checkpoint"]
    assert not [path for path in moved.parent.rglob("made") if path.is_file()]


@pytest.mark.parametrize("name", ["模型", "a\nb", "a\x7fb", "a$HOME", "a#b", "a:b"])
@pytest.mark.parametrize("place", ["directory", "VENV"])
def test_path_that_would_fail_later_is_refused_in_a_line_at_once(checkout, name, place):
    if place == "directory":
        done = run(checkout.rename(checkout.with_name(name)), "0", "3")
    else:
        done = run(checkout, "0", "3", **{place: name})
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    signs = "no '$', '#' or ':'" if name in ("a$HOME", "a#b", "a:b") else "ASCII alone"
    assert signs in done.stderr
    assert ("the directory of run.sh" if place == "directory" else place) in done.stderr


def test_checkpoint_lies_under_a_path_in_ascii(checkout):
    done = run(checkout, "0", "3", CHECKPOINT="checkpoints/模型")
    assert (done.returncode, done.stdout) == (2, "")
    assert "CHECKPOINT is" in done.stderr
    assert "ASCII alone" in done.stderr


@pytest.mark.parametrize("name", ["a b", 'a"b', "a\\b"])
def test_server_starts_for_the_checkpoint_that_it_is_rendered_for(checkout, name):
    for checkpoint in (name, "other"):
        (checkout / checkpoint).mkdir()
    (checkout / "build/cosyvoice2/config.pbtxt").write_text(served(checkout / name))
    for named in (name, f"./{name}/", ""):
        assert called(checkout, "3", CHECKPOINT=named) == ["-m cosyvoice_runtime.supervisor build"]
    done = run(checkout, "3", CHECKPOINT="other")
    assert done.returncode == 2
    assert done.stderr.startswith(f"run.sh: build serves {checkout / name}, not other;")
    assert "python" not in done.stdout


@pytest.mark.parametrize("folder", ["bin", "with space"])
def test_link_to_it_runs_where_it_lies(checkout, tmp_path_factory, folder):
    link = tmp_path_factory.mktemp(folder) / "cosyvoice"
    link.symlink_to(checkout / "run.sh")
    environment = {
        "PATH": f"{checkout / 'bin'}:{os.environ['PATH']}",
        "VENV": "system",
        "MODEL_REPO": "build",
    }
    command = ["bash", link, "2"]
    done = subprocess.run(
        command, env={**environment, "CHECKPOINT": "checkpoint"}, cwd="/", capture_output=True, text=True
    )
    assert "python scripts/render_model_repo.py --output build checkpoint_dir=checkpoint" in done.stdout


def test_demo_serves_when_it_is_told_to(checkout):
    assert called(checkout, "demo") == ["scripts/demo.py"]
    assert called(checkout, "demo", "--serve") == ["scripts/demo.py --serve"]


def test_options_come_last_and_so_win(checkout):
    [line] = called(checkout, "5", "5", "offline", "--concurrency", "2")
    assert line.endswith("--mode offline --concurrency 1,2,4,8 --concurrency 2")


@pytest.mark.parametrize(
    ("arguments", "port"),
    [(["4"], 9001), (["4", "4", "offline"], 9000), (["5"], 9001), (["5", "5", "offline"], 9001)],
)
def test_clients_and_benchmarks_ask_the_server_of_the_settings(checkout, arguments, port):
    ports = {"COSYVOICE_SERVER__HTTP_PORT": "9000", "COSYVOICE_SERVER__GRPC_PORT": "9001"}
    [line] = called(checkout, *arguments, **ports, COSYVOICE_SERVER__HOST="0.0.0.0")
    assert f"--url 127.0.0.1:{port} " in line


def test_free_port_has_to_be_named(checkout):
    done = run(checkout, "4", COSYVOICE_SERVER__GRPC_PORT="0")
    assert done.returncode == 2
    assert "server.grpc_port: 0 is not accepted; a port, or --server-url" in done.stderr
    named = ["4", "4", "streaming", "--server-url", "here:1"]
    [line] = called(checkout, *named, COSYVOICE_SERVER__GRPC_PORT="0")
    assert line.endswith("--server-url here:1")


@pytest.mark.parametrize(
    ("missing", "stage", "made_by"),
    [
        ("checkpoint/cosyvoice2.yaml", "1", "0"),
        ("checkpoint/cosyvoice2.yaml", "2", "0"),
        ("build/cosyvoice2/config.pbtxt", "3", "2"),
        ("checkpoint/cosyvoice2.yaml", "6", "0"),
    ],
)
def test_missing_input_names_the_stage_that_makes_it(checkout, missing, stage, made_by):
    (checkout / missing).unlink()
    done = run(checkout, stage)
    assert done.returncode == 1
    assert (
        done.stderr
        == f"run.sh: {missing} is missing; stage {made_by} makes it: ./run.sh {made_by} {made_by}\n"
    )
    assert "python" not in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["7"],
        ["0", "7"],
        ["2", "5"],
        ["2", "1"],
        ["serve"],
        ["demo", "bogus"],
        ["demo", "--serve", "bogus"],
        ["4", "4", "bogus"],
        ["4", "4", "--text", "Hi."],
        ["0", "2", "streaming"],
    ],
    ids=" ".join,
)
def test_what_it_does_not_know_it_does_not_start(checkout, arguments):
    done = run(checkout, *arguments)
    assert done.returncode == 2
    assert done.stderr
    assert done.stdout == ""


def test_offline_benchmark_needs_torch_and_says_so(checkout):
    done = run(checkout, "6", "6", TORCH="no")
    assert done.returncode == 2
    assert "stage 6 needs torch" in done.stderr


@pytest.mark.parametrize(
    ("argument", "variables", "asked"),
    [
        ("2", {}, []),
        ("2", {"TORCH": "no"}, ["--no-torch"]),
        ("demo", {}, ["--no-torch"]),
        ("demo", {"TORCH": "yes"}, []),
    ],
)
def test_environment_is_without_torch_for_the_demo_and_when_asked_for(checkout, argument, variables, asked):
    python = checkout / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    shutil.copy(checkout / "bin" / "python3", python)
    first, *_ = called(checkout, argument, VENV="venv", **variables)
    assert first.split() == ["scripts/environment.py", "--venv", "venv", *asked]


def test_stop_of_the_demo_reaches_it(checkout):
    (checkout / "bin/python3").write_text("#!/bin/sh\necho $$\nexec sleep 600\n")
    environment = {"PATH": f"{checkout / 'bin'}:{os.environ['PATH']}", "VENV": "system"}
    command = ["bash", "run.sh", "demo", "--serve"]
    with subprocess.Popen(command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True) as demo:
        pid = int(demo.stdout.readline())
        demo.terminate()
        demo.wait()
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        pytest.fail("the demo went on")
