"""The README's commands, code, links and tables are true."""

from __future__ import annotations

import os
import random
import re
import shlex
import subprocess
import sys
import wave
from pathlib import Path

import pytest

pytest.importorskip("tritonclient.grpc", reason="needs the environment of scripts/environment.py")

from cosyvoice_runtime.settings import Settings

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line.split("#")[0].strip()
    for block in re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if line.split("#")[0].strip()
]


def run(command: list[str], folder: Path) -> None:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_command_names_only_what_exists(command: str) -> None:
    words = shlex.split(command)
    assignments = [words.pop(0) for _ in range(len(words)) if re.fullmatch(r"\w+=\S*", words[0])]
    settings = [name for name in assignments if name.startswith("COSYVOICE_")]
    Settings.read(environment=dict(name.split("=", 1) for name in settings))
    program, *rest = words
    if program == "./run.sh":
        assert rest[0] in ("demo", "test") or all(word in "0123456" for word in rest[:2])
    elif Path(program).name in ("python", "python3", "bash"):
        script = rest[1] if rest[0] == "-m" else rest[0]
        assert rest[0] == "-m" or (ROOT / script).is_file()
    elif program == "docker":
        assert (ROOT / "docker-compose.yml").is_file()
    else:
        assert program == ".venv/bin/cosyvoice"


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\((?!http)([^)#]+)", README))))
def test_link_leads_somewhere(link: str) -> None:
    assert (ROOT / link).exists()


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:benchmarks|tests|scripts)/[\w./]+)`", README))))
def test_file_named_in_the_text_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_speaking_without_a_server_works_as_written(tmp_path: Path) -> None:
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    (tmp_path / "demo_voice").symlink_to(ROOT / "demo_voice")
    programs = Path(sys.executable).parent
    for command in COMMANDS:
        if command.startswith((".venv/bin/python scripts/make_checkpoint", ".venv/bin/cosyvoice")):
            run(shlex.split(command.replace(".venv/bin/", f"{programs}/")), tmp_path)
    with wave.open(str(tmp_path / "hello.wav")) as sound:
        assert (sound.getframerate(), sound.getnchannels()) == (24_000, 1)
        assert sound.getnframes() > 2400


def test_python_example_works_as_written(tmp_path: Path, tiny_checkpoint: Path) -> None:
    [example] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    example = example.replace("checkpoints/CosyVoice2-0.5B", str(tiny_checkpoint)).replace("cuda", "cpu")
    with wave.open(str(tmp_path / "me.wav"), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(16_000)
        sound.writeframes(random.Random(0).randbytes(2 * 16_000))
    check = "assert sum(map(len, played)) > 2400 and all(part.dtype == torch.float32 for part in played)"
    program = f"import torch\nplayed = []\nplay = played.append\n{example}\n{check}\n"
    run([sys.executable, "-c", program], tmp_path)


def test_generated_tables_are_up_to_date() -> None:
    run([sys.executable, "scripts/readme_tables.py", "--check"], ROOT)
