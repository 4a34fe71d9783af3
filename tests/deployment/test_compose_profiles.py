"""Every profile of docker-compose.yml: valid by the specification, complete, and as the settings need it."""

from __future__ import annotations

import copy
import re
import shlex
from pathlib import Path

import compose_file
import docker_image
import pytest
from compose_file import PROFILES, ROOT, mebibytes, read, seconds, server, services

from cosyvoice_runtime import __version__
from cosyvoice_runtime.settings import Machine, Settings
from cosyvoice_runtime.supervisor.preflight import NEEDED_SHARED_MIB

GPU_PROFILES = ("gpu",)
MACHINES = {"cpu": Machine(cores=8, gpu=False)}
GPU_MACHINE = Machine(cores=8, gpu=True)
WORKDIR = "/opt/cosyvoice"
VOLUMES = ("logs", "checkpoints", "engines", "voices", "cache")


def settings_of(profile: str, **variables: str) -> Settings:
    """What the server of a profile reads."""
    environment = {
        name: str(value)
        for name, value in server(profile, variables)["environment"].items()
        if name.startswith("COSYVOICE_")
    }
    environment["COSYVOICE_SETTINGS"] = str(ROOT / environment["COSYVOICE_SETTINGS"])
    return Settings.read(environment=environment).resolved(MACHINES.get(profile, GPU_MACHINE))


def test_file_is_valid_by_the_specification():
    compose_file.validator().validate(read())


@pytest.mark.parametrize(
    ("place", "value"), [("shm_sizes", "1gb"), ("stop_grace_period", 90), ("profiles", "gpu"), ("deploy", [])]
)
def test_validation_finds_what_is_wrong(place, value):
    broken = copy.deepcopy(read())
    broken["services"]["gpu"][place] = value
    assert not compose_file.validator().is_valid(broken)


def test_plain_up_starts_the_server_on_one_gpu():
    assert compose_file.default_variables()["COMPOSE_PROFILES"] == "gpu"


@pytest.mark.parametrize("profile", PROFILES)
def test_profile_has_one_server_that_is_built_here(profile):
    service = server(profile)
    build = service["build"]
    assert (ROOT / build["context"] / "Dockerfile").is_file()
    assert build["args"].keys() <= docker_image.arguments().keys()
    assert build["args"]["FLAVOUR"] == profile
    assert service["image"].startswith(f"cosyvoice2:{__version__}-")
    assert service["networks"]["default"]["aliases"] == ["server"]


@pytest.mark.parametrize("profile", [*PROFILES, "front"])
def test_images_are_named_by_version_and_by_what_a_build_adds_to_it(profile):
    given = {"TAG": "0.1.0-2f46f21", "COMMIT": "2f46f217"}
    [service] = services(profile, given).values()
    assert service["image"].startswith("cosyvoice2:0.1.0-2f46f21-")
    assert service["build"]["args"]["COMMIT"] == "2f46f217"
    [service] = services(profile).values()
    assert service["image"].startswith(f"cosyvoice2:{__version__}-")


def test_front_s_audit_log_is_the_container_s_unless_a_file_is_named(front):
    name = "COSYVOICE_FRONT__AUDIT_FILE"
    assert front["environment"][name] == "-"
    [named] = services("front", {name: "/log/audit"}).values()
    assert named["environment"][name] == "/log/audit"


def test_monitoring_goes_with_any_profile():
    ports = [port for service in services("monitoring").values() for port in service["ports"]]
    for profile in PROFILES:
        taken = [port.split(":")[-2] for port in (*ports, *server(profile)["ports"])]
        assert len(set(taken)) == len(taken)
    assert services("monitoring").keys() == {"prometheus", "grafana"}


@pytest.mark.parametrize("name", ["prometheus", "grafana"])
def test_images_from_elsewhere_are_pinned(name):
    image, _, tag = services("monitoring")[name]["image"].partition(":")
    assert tag.strip("v").count(".") == 2, image


def test_what_outlives_a_container_is_in_volumes_with_names():
    declared = read()["volumes"].keys()
    for profile in PROFILES:
        mounts = dict(volume.split(":") for volume in server(profile)["volumes"])
        assert mounts == {name: f"{WORKDIR}/{name}" for name in VOLUMES}
        assert mounts.keys() <= declared
        for name in VOLUMES:  # a volume takes its owner from the image's directory
            assert name in docker_image.final("RUN").values[0].split("install --directory")[1].split()


@pytest.mark.parametrize("profile", [*PROFILES, "front"])
def test_image_can_not_be_written_and_nobody_gains_rights(profile):
    [service] = services(profile).values()
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("profile", PROFILES)
def test_server_may_write_where_it_writes(profile):
    """The places of docs/security.md, which the Helm chart has too; Docker's own /dev/shm beside them."""
    mounts = dict(place.split(":") for place in server(profile)["tmpfs"])
    assert mounts.keys() == {"/tmp", f"{WORKDIR}/build"}
    assert "exec" in mounts["/tmp"].split(",")
    assert {"uid=10001", "gid=10001"} <= set(mounts[f"{WORKDIR}/build"].split(","))
    pod = (ROOT / "deploy/helm/cosyvoice/templates/_pod.tpl").read_text("utf-8")
    [listed] = re.findall(r"range list (.*) \}\}\n- name: \{\{ \. \}\}\n  emptyDir", pod)
    assert set(shlex.split(listed)) == {"build", "cache", "logs", "tmp"}
    assert {"cache", "logs"} <= set(VOLUMES)


def test_flavour_and_release_are_named_by_variables():
    assert server("gpu")["build"]["args"]["TRITON"] == ""
    chosen = server("gpu", {"FLAVOUR": "vllm", "TRITON": "26.08"})
    assert (chosen["build"]["args"]["FLAVOUR"], chosen["build"]["args"]["TRITON"]) == ("vllm", "26.08")
    assert chosen["image"].endswith("-vllm")


def test_caches_of_compilers_lie_in_a_volume():
    environment = docker_image.environment()
    for variable in ("HOME", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH"):
        assert Path(environment[variable]).is_relative_to(f"{WORKDIR}/cache")


@pytest.mark.parametrize("name", read()["services"])
def test_service_comes_back_after_a_reboot_and_its_logs_stay_small(name):
    service = read()["services"][name]
    assert service["restart"] == "unless-stopped"
    assert service["logging"]["driver"] == "json-file"
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}


@pytest.fixture
def front() -> compose_file.Service:
    [service] = services("front").values()
    return service


def test_front_takes_settings_of_one_s_own_and_listens_beside_the_server(front):
    assert front["env_file"] == server("gpu")["env_file"] == ".env"
    assert front["ports"] == ["127.0.0.1:8080:8080"]
    settings = Settings.read(environment=front["environment"]).front
    assert settings.grpc_url == f"{server('gpu')['networks']['default']['aliases'][0]}:8001"
    assert seconds(front["stop_grace_period"]) > settings.drain_timeout_s


def test_front_keeps_uploaded_voices_where_the_server_has_its_own(front):
    """A volume takes its owner from the image's directory."""
    [mount] = front["volumes"]
    assert mount in server("gpu")["volumes"]
    directory = Settings.read(environment=front["environment"]).front.voices_dir
    assert mount == f"voices:{directory}"
    [steps] = docker_image.of("RUN", "front")
    [owned] = re.findall(r"install --directory --owner=(\d+) --group=\d+ (\S+)", steps.values[0])
    assert owned == (docker_image.of("USER", "front")[0].values[0], Path(directory).name)
    assert "--requirement requirements/front.txt" in steps.values[0]
    assert re.search(r"^safetensors==", (ROOT / "requirements/front.txt").read_text(), re.MULTILINE)


def test_front_asks_for_the_keys_of_a_file_of_the_host(front):
    [secret] = front["secrets"]
    assert front["environment"]["COSYVOICE_FRONT__API_KEYS_FILE"] == f"/run/secrets/{secret}"
    assert read()["secrets"][secret]["file"] == "./keys.txt"
    assert read({"FRONT_KEYS": "/etc/keys"})["secrets"][secret]["file"] == "/etc/keys"


@pytest.mark.parametrize(
    ("given", "environment"), [({}, "--no-torch"), ({"ENVIRONMENT": "--torch"}, "--torch")]
)
def test_image_without_a_gpu_has_torch_when_asked_for(given, environment):
    assert server("cpu", given)["build"]["args"]["ENVIRONMENT"] == environment


@pytest.mark.parametrize("profile", PROFILES)
def test_revision_of_the_checkpoint_may_be_named(profile):
    assert server(profile)["environment"]["REVISION"] == ""
    assert server(profile, {"REVISION": "v1"})["environment"]["REVISION"] == "v1"


def test_nobody_logs_in_to_the_dashboard():
    environment = services("monitoring")["grafana"]["environment"]
    assert environment["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert environment["GF_AUTH_BASIC_ENABLED"] == "false"


@pytest.mark.parametrize("name", ["prometheus", "grafana"])
def test_mounted_files_exist(name):
    mounts = [volume.split(":")[0] for volume in services("monitoring")[name]["volumes"]]
    files = [mount for mount in mounts if mount.startswith(".")]
    assert files
    assert all((ROOT / file).exists() for file in files)


@pytest.mark.parametrize("profile", PROFILES)
def test_server_gets_the_time_and_the_memory_it_needs(profile):
    section, service = settings_of(profile).server, server(profile)
    assert seconds(service["stop_grace_period"]) > section.drain_timeout_s + section.exit_timeout_s + 10
    assert mebibytes(service["shm_size"]) >= 4 * NEEDED_SHARED_MIB
    assert service["init"] is True


@pytest.mark.parametrize("profile", PROFILES)
def test_gpus_are_reserved_where_they_are_used(profile):
    reserved = server(profile).get("deploy", {}).get("resources", {}).get("reservations", {})
    if profile not in GPU_PROFILES:
        assert not reserved
        return
    [devices] = reserved["devices"]
    assert (devices["driver"], devices["capabilities"]) == ("nvidia", ["gpu"])
    assert devices["count"] == 1


def test_profiles_place_the_networks():
    gpu, cpu = (settings_of(profile) for profile in PROFILES)
    assert {gpu.tensorrt_llm.device, gpu.token2wav.device} == {"cuda:0"}
    assert (cpu.tensorrt_llm.device, cpu.token2wav.device) == ("cpu", "cpu,cpu")


@pytest.mark.parametrize("profile", GPU_PROFILES)
@pytest.mark.parametrize("engine", ["torch", "tensorrt_llm", "vllm"])
def test_engine_is_chosen_by_a_variable(profile, engine):
    assert settings_of(profile).tensorrt_llm.engine == "torch"  # what auto is there
    assert settings_of(profile, ENGINE=engine).tensorrt_llm.engine == engine


@pytest.mark.parametrize("profile", GPU_PROFILES)
def test_engine_in_a_setting_comes_before_the_variable(profile):
    name = "COSYVOICE_TENSORRT_LLM__ENGINE"
    chosen = server(profile, {name: "tensorrt_llm", "ENGINE": "vllm"})["environment"][name]
    assert chosen == "tensorrt_llm"
    assert server(profile, {"ENGINE": "vllm"})["environment"][name] == "vllm"
    assert server(profile)["environment"][name] == "auto"


@pytest.mark.parametrize("profile", PROFILES)
def test_each_family_has_a_checkpoint_directory_of_its_own_unless_one_is_named(profile):
    def directory(**variables: str) -> str:
        return server(profile, variables)["environment"]["CHECKPOINT"]

    assert directory(FAMILY="cosyvoice300m") == ""  # run.sh names it
    assert directory(CHECKPOINT="checkpoints/demo_voice") == "checkpoints/demo_voice"


@pytest.mark.parametrize("profile", PROFILES)
def test_settings_file_is_in_the_image(profile):
    path = server(profile)["environment"]["COSYVOICE_SETTINGS"]
    assert not Path(path).is_absolute()
    assert (ROOT / path).is_file()
    assert docker_image.in_context(path)


def test_server_is_reached_from_its_own_machine_only_unless_told_otherwise():
    assert all(port.startswith("127.0.0.1:") for port in server("gpu")["ports"])
    assert all(port.startswith("0.0.0.0:") for port in server("gpu", {"LISTEN": "0.0.0.0"})["ports"])
