"""Commands, code, links and tables of the README and of docs/ are true."""

from __future__ import annotations

import json
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
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
}
LINKING = PAGES | {
    page: (ROOT / page).read_text(encoding="utf-8")
    for page in (
        "CHANGELOG.md",
        "benchmarks/results/README.md",
        "demo_voice/README.md",
        "deploy/helm/cosyvoice/README.md",
    )
}
COMMANDS = sorted(
    {
        line.split(" # ")[0].strip()
        for text in PAGES.values()
        for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
        for line in block.replace("\\\n", " ").splitlines()
        if line.split("#")[0].strip()
    }
)
KNOWN = {
    "run.sh demo": ["tests/server/test_demo_command.py"],
    "run.sh demo --serve": ["tests/server/test_demo_command.py", "tests/server/test_demo_ends.py"],
    "curl http://127.0.0.1:8080/v1/audio/speech": ["tests/front/test_front_http.py"],
    "run.sh fleet": ["tests/server/test_fleet_command.py"],
    "-m cosyvoice_front": ["tests/front/test_front_command.py", "tests/front/test_front_real_server.py"],
    "-m cosyvoice_front.keys": ["tests/front/test_front_keys.py"],
    "-m cosyvoice_dynamo": ["tests/fleet/test_dynamo.py"],
    "-m dynamo.frontend": ["tests/fleet/test_dynamo.py"],
    "-m pip install": ["tests/scripts/test_requirements.py"],
    "run.sh check": ["tests/check/test_check.py", "tests/scripts/test_run_sh.py"],
    "compile_kernels.py": ["tests/compilation/test_forms.py"],
    "tune_kernels.py": ["tests/compilation/test_tuning.py"],
    "run.sh test": [],
    "run.sh 0": ["tests/scripts/test_run_sh.py"],
    "run.sh 1": ["tests/scripts/test_run_sh.py"],
    "run.sh 2": ["tests/scripts/test_run_sh.py"],
    "run.sh 3": ["tests/scripts/test_run_sh.py"],
    "run.sh 4": ["tests/client/test_client_commands.py"],
    "run.sh 5": ["tests/benchmarks/test_client_server.py"],
    "cosyvoice speak": ["tests/scripts/test_documents.py"],
    "-m cosyvoice_runtime.alignment": ["tests/alignment/test_calibration.py"],
    "-m cosyvoice_runtime.checkpoint": ["tests/checkpoint/test_checksums.py"],
    "cosyvoice speak -": ["tests/local/test_cli.py"],
    "cosyvoice speak --script": ["tests/local/test_cli.py"],
    "grpc_client.py --script": ["tests/client/test_client_commands.py"],
    "cosyvoice voices": ["tests/local/test_cli.py"],
    "cosyvoice book": ["tests/local/test_book.py", "tests/book", "tests/client/test_book_of_a_server.py"],
    "-m pytest tests/front/clients": ["tests/front/clients"],
    "sbom.py": ["tests/deployment/test_docker_image.py"],
    "environment.py": ["tests/scripts/test_environment.py"],
    "build_engines.py": [
        "tests/scripts/test_engine_scripts.py",
        "tests/lm/scheduler/engine_tensorrt_llm/test_engine_stage.py",
    ],
    "-m cosyvoice_runtime.preflight": ["tests/preflight"],
    "lm_agreement.py": ["tests/lm/scheduler/engine_tensorrt_llm/test_lm_agreement.py"],
    "capacity.py": ["tests/benchmarks/test_capacity_model.py"],
    "contract.py": ["tests/benchmarks/test_contract.py", "tests/benchmarks/test_hearing.py"],
    "offline_inference.py": ["tests/benchmarks/test_offline_inference.py"],
    "quality.py": ["tests/benchmarks/test_quality.py"],
    "bench run": ["tests/front/test_measuring_tools.py"],
    "genai-bench benchmark": ["tests/front/test_measuring_tools.py"],
    "replay_image.py": ["tests/deployment/test_docker_image.py"],
    "docker compose --profile": ["tests/deployment/test_compose_profiles.py"],
    "useradd": ["tests/deployment/test_systemd.py"],
    "install": ["tests/deployment/test_systemd.py"],
    "systemctl": ["tests/deployment/test_systemd.py"],
    "docker compose": ["tests/deployment"],
    "docker build": ["tests/deployment"],
    "docker run": ["tests/deployment"],
    "docker push": [],
    "helm install": ["tests/fleet/chart"],
    "kubectl": ["tests/fleet/chart"],
    "export": [],
}
"""Tests of each command of the pages, by its beginning; the whole suite and a variable alone have none."""


def parts(command: str) -> tuple[dict[str, str], list[str]]:
    """Variables and words of a command, the program first and without its path or its interpreter."""
    words = shlex.split(command)
    variables = [words.pop(0) for _ in range(len(words)) if re.fullmatch(r"\w+=\S*", words[0])]
    words = words or ["export"]  # a variable alone is set for the commands below it
    if Path(words[0]).name in ("python", "python3", "bash"):
        words.pop(0)
    words[0] = Path(words[0]).name
    return dict(variable.split("=", 1) for variable in variables), words


def known_tests(command: str) -> list[str]:
    """Tests that run the command or check its files; the longest beginning counts."""
    text = " ".join(parts(command)[1])
    fitting = [beginning for beginning in KNOWN if f"{text} ".startswith(f"{beginning} ")]
    assert fitting, f"no test is known of: {command}"
    return KNOWN[max(fitting, key=len)]


def anchors(page: Path) -> list[str]:
    """Anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def run(command: list[str], folder: Path) -> None:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_command_of_a_page_has_settings_a_script_and_tests(command: str) -> None:
    variables, words = parts(command)
    Settings.read(
        environment={key: value for key, value in variables.items() if key.startswith("COSYVOICE_")}
    )
    if words[0].endswith(".py"):
        assert list(ROOT.glob(f"*/{words[0]}"))
    assert all((ROOT / test).exists() for test in known_tests(command))


def test_no_test_is_listed_of_a_command_that_no_page_has() -> None:
    texts = [" ".join(parts(command)[1]) for command in COMMANDS]
    for beginning in KNOWN:
        assert any(f"{text} ".startswith(f"{beginning} ") for text in texts) or beginning.startswith(
            "run.sh "
        )


@pytest.mark.parametrize("page", LINKING)
def test_links_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\((?!http)([^)#]*)(?:#[^)]*)?\)", LINKING[page]):
        assert not link or (ROOT / page).parent.joinpath(link).exists(), link


@pytest.mark.parametrize("page", LINKING)
def test_links_to_headings_lead_to_one(page: str) -> None:
    for link, anchor in re.findall(r"\]\((?!http)([^)#]*)#([^)]+)\)", LINKING[page]):
        target = (ROOT / page).parent.joinpath(link) if link else ROOT / page
        assert anchor in anchors(target), f"{link}#{anchor}"


@pytest.mark.parametrize(
    "folder", ["cosyvoice_runtime", "cosyvoice_front", "cosyvoice_dynamo", "client", "scripts", "deploy"]
)
def test_pages_that_code_names_exist(folder: str) -> None:
    for path in (ROOT / folder).rglob("*"):
        if not path.is_file() or path.suffix == ".pyc":
            continue
        text = path.read_bytes().decode("utf-8", "ignore")
        for page, anchor in re.findall(r"(?<![/\w])(docs/\w+\.md)(?:#([\w-]+))?", text):
            assert (ROOT / page).exists() or "Triton" in text or "TensorRT-LLM" in text, f"{path}: {page}"
            assert not anchor or anchor in anchors(ROOT / page), f"{path}: {page}#{anchor}"


@pytest.mark.parametrize("page", PAGES)
def test_paths_named_in_the_text_exist(page: str) -> None:
    folders = "benchmarks|tests|scripts|cosyvoice_\\w+|model_repo|client|demo_voice|deploy"
    for path in re.findall(rf"`((?:{folders})/[\w./]+)(?::[^`]*)?`", PAGES[page]):
        assert (ROOT / path).exists(), path


def test_settings_named_in_pages_and_deployments_exist() -> None:
    sections = {name: section.field_names() for name, section in Settings().sections().items()}
    setting = re.compile(rf"(?<![\w/.])({'|'.join(sections)})\.([a-z]+_\w+)\b(?!\.)")
    deployments = [
        ROOT / "docker-compose.yml",
        *(path for path in (ROOT / "deploy").rglob("*") if path.is_file()),
    ]
    texts = PAGES | {str(path): path.read_text(encoding="utf-8") for path in deployments}
    for source, text in texts.items():
        for section, name in setting.findall(text):
            assert name in sections[section], f"{source}: {section}.{name}"


def test_speaking_without_a_server_works_as_written(tmp_path: Path) -> None:
    (tmp_path / "demo_voice").symlink_to(ROOT / "demo_voice")
    programs = Path(sys.executable).parent
    commands = [command for command in COMMANDS if command.startswith('.venv/bin/cosyvoice speak "')]
    for command in commands:
        run(shlex.split(command.replace(".venv/bin/", f"{programs}/")), tmp_path)
    for name in ("hello.wav", "told.wav"):
        with wave.open(str(tmp_path / name)) as sound:
            assert (sound.getframerate(), sound.getnchannels()) == (24_000, 1)
            assert sound.getnframes() > 2400
    told = json.loads((tmp_path / "told.json").read_text("utf-8"))
    assert told["method"] == "attention"
    assert [word["word"] for word in told["words"]] == ["It", "costs", "$25", "at", "7:45."]
    assert (tmp_path / "told.srt").exists()
    assert (tmp_path / "told.vtt").exists()


def test_python_examples_work_as_written(tmp_path: Path, tiny_checkpoint: Path) -> None:
    """Those of one process; the last one is of a server."""
    *examples, _ = re.findall(r"```python\n(.*?)```", PAGES["docs/library.md"], re.DOTALL)
    example = (
        "".join(examples).replace("checkpoints/CosyVoice2-0.5B", str(tiny_checkpoint)).replace("cuda", "cpu")
    )
    with wave.open(str(tmp_path / "me.wav"), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(16_000)
        sound.writeframes(random.Random(0).randbytes(2 * 16_000))
    check = "assert sum(map(len, played)) > 2400 and all(part.dtype == numpy.float32 for part in played)"
    program = f"import numpy\nplayed = []\nplay = played.append\n{example}\n{check}\n"
    run([sys.executable, "-c", program], tmp_path)


def test_generated_tables_are_up_to_date() -> None:
    run([sys.executable, "scripts/reference_tables.py", "--check"], ROOT)
