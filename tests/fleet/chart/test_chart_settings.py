"""Pods are told what the product reads: variables, settings, places, ports."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

import chart_image
import pytest
from chart_render import (
    BUCKET,
    CHART,
    EXAMPLES,
    RELEASES,
    ROOT,
    TRACES,
    Manifest,
    Values,
    chart,
    container,
    defaults,
    environment,
    example,
    manifests,
    merged,
    nested,
    one,
    pod,
    schema,
)

from cosyvoice_runtime import __version__
from cosyvoice_runtime.process.spans import ENDPOINT
from cosyvoice_runtime.settings import Settings

RUN_SH = (ROOT / "run.sh").read_text("utf-8")
WORKDIR = PurePosixPath("/opt/cosyvoice")
OF_OTHERS = {"HOME", "AWS_ENDPOINT_URL", "AWS_REGION", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_TRACES_SAMPLER"}
"""Variables of the shell, of AWS's libraries and of OpenTelemetry's."""
COMPONENTS = ("server", "front")


def settings_of(component: str, values: Values | None = None) -> Settings:
    """What a pod reads, in its image; a variable that is no setting is refused."""
    given = {
        name: value for name, value in environment(component, values).items() if name.startswith("COSYVOICE_")
    }
    if "COSYVOICE_SETTINGS" in given:
        given["COSYVOICE_SETTINGS"] = str(ROOT / given["COSYVOICE_SETTINGS"])
    return Settings.read(environment=given)


def components(values: Values) -> list[str]:
    return [name for name in COMPONENTS if name == "server" or merged(defaults(), values)["front"]["enabled"]]


def mounts(of: Manifest) -> dict[str, str]:
    """Names of volumes by the places where a container has them."""
    return {mount["mountPath"]: mount["name"] for mount in of["volumeMounts"]}


@pytest.mark.parametrize("name", ["defaults", "bucket", "traces", *EXAMPLES])
def test_variables_are_settings_or_known_to_run_sh(name: str) -> None:
    values = RELEASES[name]
    for component in components(values):
        settings_of(component, values)
        others = {key for key in environment(component, values) if not key.startswith("COSYVOICE_")}
        assert others - OF_OTHERS <= set(re.findall(r"\$\{?(\w+)", RUN_SH))


def sample(rule: Values, default: Any) -> Any:
    """The largest number that a setting takes, in whose place Helm could write 1e+06, or its default."""
    rule = rule["anyOf"][0] if "anyOf" in rule else rule
    if rule["type"] in ("integer", "number"):
        return rule["maximum"]
    return list(default) if isinstance(default, tuple) else default


def test_every_setting_that_the_schema_takes_arrives_as_it_was_given() -> None:
    rules = schema()["properties"]["server"]["properties"]["settings"]["properties"]
    rules["front"] = schema()["properties"]["front"]["properties"]["settings"]
    sections = Settings().sections()
    given = {
        name: {key: sample(each, getattr(sections[name], key)) for key, each in rule["properties"].items()}
        for name, rule in rules.items()
    }
    front = given.pop("front")
    values = {"server": {"settings": given}, "front": {"settings": front}}
    chart().validate_schema(merged(defaults(), values))
    read = settings_of("server", values).sections() | {"front": settings_of("front", values).front}
    for section, wanted in (given | {"front": front}).items():
        for key, value in wanted.items():
            found = getattr(read[section], key)
            assert (list(found) if isinstance(found, tuple) else found) == value, (section, key)


def test_no_setting_can_be_given_that_the_chart_decides_itself() -> None:
    templates = "".join(each["data"] for each in chart().templates)
    decided = set(re.findall(r"COSYVOICE_\w+__\w+", templates))
    rules = {name: schema()["properties"][name]["properties"]["settings"] for name in COMPONENTS}
    offered = {
        f"COSYVOICE_{section}__{key}".upper()
        for section, rule in (rules["server"]["properties"] | {"front": rules["front"]}).items()
        for key in rule["properties"]
    }
    assert decided
    assert decided & offered == set()


def test_servers_and_fronts_have_the_same_settings_of_voices() -> None:
    values = nested("server.settings.cosyvoice2", {"max_voices": 7, "reference_days": 1})
    server, front = settings_of("server", values).cosyvoice2, settings_of("front", values).cosyvoice2
    assert (front.max_voices, front.reference_days) == (server.max_voices, server.reference_days) == (7, 1)


@pytest.mark.parametrize(("gpu", "file"), [(True, "deploy/gpu.toml"), (False, "deploy/cpu.toml")])
def test_settings_file_is_that_of_the_machine_and_in_the_image(gpu: bool, file: str) -> None:
    values = nested("server.gpu.enabled", gpu)
    assert environment("server", values)["COSYVOICE_SETTINGS"] == file
    assert (ROOT / file).is_file()
    limits = container("server", values)["resources"]["limits"]
    assert limits.get("nvidia.com/gpu") == ("1" if gpu else None)


@pytest.mark.parametrize("component", COMPONENTS)
def test_ports_are_those_on_which_the_product_listens(component: str) -> None:
    ports = {port["name"]: port["containerPort"] for port in container(component)["ports"]}
    section = getattr(settings_of(component), component)
    names = {"http": "http_port", "grpc": "grpc_port", "metrics": "model_metrics_port"}
    if component == "front":
        names = {"http": "port", "metrics": "metrics_port"}
    assert ports == {name: getattr(section, field) for name, field in names.items()}
    assert chart_image.ports(component) <= set(ports.values())
    assert section.host == "0.0.0.0"


def test_pods_of_ipv6_listen_to_it() -> None:
    values = {"listen": "::"}
    assert settings_of("server", values).server.host == settings_of("front", values).front.host == "::"


def test_front_finds_the_servers_by_their_service() -> None:
    service = one("Service", "-server")
    [port] = service["spec"]["ports"]
    read = settings_of("front").front
    # All addresses of the name, between which gRPC itself chooses.
    assert read.grpc_url == f"dns:///{service['metadata']['name']}:{port['port']}"
    assert read.balancing == "round_robin"
    assert port["port"] == settings_of("server").server.grpc_port  # DNS tells addresses without ports


def test_server_writes_to_volumes_alone() -> None:
    variables = chart_image.variables("server") | environment("server")
    read = settings_of("server")
    written = [
        *(variables[name] for name in ("HOME", "CHECKPOINT", "XDG_CACHE_HOME", "TRITON_CACHE_DIR")),
        "build/model_repo",  # MODEL_REPO of run.sh
        *("/tmp", "/dev/shm"),
        *(read.cosyvoice2.voices_dir, variables["COSYVOICE_SERVER__LOG_FILE"]),
        *(read.tensorrt_llm.engine_dir, read.token2wav.backend_dir, read.audio_tokenizer.backend_dir),
    ]
    assert 'MODEL_REPO="${MODEL_REPO:-build/model_repo}"' in RUN_SH
    places = mounts(container("server"))
    lost = [path for path in written if not any((WORKDIR / path).is_relative_to(place) for place in places)]
    assert lost == []


def test_shared_memory_is_in_memory_and_larger_than_the_server_asks_for() -> None:
    from cosyvoice_runtime.supervisor.preflight import NEEDED_SHARED_MIB

    place = mounts(container("server"))["/dev/shm"]
    [volume] = [each for each in pod("server")["volumes"] if each["name"] == place]
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Gi"}
    assert NEEDED_SHARED_MIB * 4 <= 1024


@pytest.mark.parametrize("component", COMPONENTS)
def test_mounts_and_volumes_belong_together(component: str) -> None:
    for values in RELEASES.values():
        if component in components(values):
            spec = pod(component, values)
            declared = {volume["name"] for volume in spec["volumes"]}
            several = spec["containers"] + spec.get("initContainers", [])
            assert {name for each in several for name in mounts(each).values()} == declared


def test_uploaded_voices_lie_where_servers_look_for_them() -> None:
    read = settings_of("front").front
    assert mounts(container("front"))[read.voices_dir] == "voices"
    assert mounts(container("server"))[str(WORKDIR / settings_of("server").cosyvoice2.voices_dir)] == "voices"
    claims = [
        volume["persistentVolumeClaim"]["claimName"]
        for component in COMPONENTS
        for volume in pod(component)["volumes"]
        if volume["name"] == "voices"
    ]
    assert len(claims) == 2
    assert set(claims) == {one("PersistentVolumeClaim", "-voices")["metadata"]["name"]}
    without = nested("volumes.voices.persistent", False)
    assert settings_of("front", without).front.voices_dir == ""


@pytest.mark.parametrize("component", COMPONENTS)
def test_bucket_of_voices_takes_the_place_of_their_volume(component: str) -> None:
    read = settings_of(component, BUCKET)
    assert read.cosyvoice2.voices_url == BUCKET["bucket"]["url"]
    assert read.front.voices_dir == ""
    [secret] = container(component, BUCKET)["envFrom"]
    assert secret == {"secretRef": {"name": "bucket"}}
    told = environment(component, BUCKET)
    assert (told["AWS_ENDPOINT_URL"], told["AWS_REGION"]) == ("https://s3.example.org", "eu-central-1")
    claims = [
        each["metadata"]["name"] for each in manifests(BUCKET) if each["kind"] == "PersistentVolumeClaim"
    ]
    assert claims == ["speech-cosyvoice-checkpoints", "speech-cosyvoice-engines"]
    assert "envFrom" not in container(component, merged(BUCKET, nested("bucket.secret", "")))


def test_servers_keep_what_they_have_read_of_the_bucket_in_a_place_that_they_may_write() -> None:
    [voices] = [each for each in pod("server", BUCKET)["volumes"] if each["name"] == "voices"]
    assert voices["emptyDir"] == {}
    assert mounts(container("server", BUCKET))["/opt/cosyvoice/voices"] == "voices"


def test_variables_of_the_bucket_are_those_that_its_library_reads() -> None:
    code = (ROOT / "cosyvoice_runtime" / "voice" / "bucket.py").read_text("utf-8")
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    assert "AWS_ENDPOINT_URL" in code
    assert "AWS_REGION" in page


@pytest.mark.parametrize("component", COMPONENTS)
def test_spans_go_to_the_receiver_that_the_values_name(component: str) -> None:
    told = environment(component, TRACES)
    assert told[ENDPOINT] == TRACES["traces"]["endpoint"]
    assert told["OTEL_TRACES_SAMPLER"] == "parentbased_always_off"
    assert not [name for name in environment(component) if name.startswith("OTEL")]


def test_keys_are_a_file_of_a_secret_which_the_front_rereads() -> None:
    read = settings_of("front").front
    [volume] = [each for each in pod("front")["volumes"] if "secret" in each]
    assert volume["secret"]["secretName"] == "cosyvoice-keys"
    place = PurePosixPath(read.api_keys_file).parent
    assert mounts(container("front"))[str(place)] == volume["name"]
    assert not [mount for mount in container("front")["volumeMounts"] if "subPath" in mount]  # never renewed


def test_address_of_redis_which_may_hold_a_password_is_a_secret_s() -> None:
    def variable(values: Values) -> list[Manifest]:
        return [
            each
            for each in container("front", values)["env"]
            if each["name"] == "COSYVOICE_FRONT__LIMITS_URL"
        ]

    assert variable({}) == []
    [told] = variable(nested("front.redis.secret", "my-redis"))
    assert told["valueFrom"] == {"secretKeyRef": {"name": "my-redis", "key": "url"}}
    assert Settings.read(environment={told["name"]: "redis://redis:6379/0"}).front.limits_url


def test_checkpoint_is_the_one_that_run_sh_would_choose() -> None:
    published = dict(re.findall(r"^  (cosyvoice\w+)\) PUBLISHED=(\S+) ;;$", RUN_SH, re.MULTILINE))
    families = schema()["properties"]["server"]["properties"]["family"]["enum"]
    assert set(families) == set(published)
    for family in families:
        values = nested("server.family", family)
        assert environment("server", values)["CHECKPOINT"] == f"checkpoints/{published[family]}"
        [waiting] = pod("server", values)["initContainers"]
        assert waiting["command"][-1] == f"checkpoints/{published[family]}"


def test_servers_start_as_their_image_does_and_the_job_runs_its_first_stages() -> None:
    assert "command" not in container("server")
    assert chart_image.command("server") == ["bash", "run.sh", "0", "3"]
    for gpu, last in ((True, "0"), (False, "1")):
        [job] = [each for each in manifests(nested("server.gpu.enabled", gpu)) if each["kind"] == "Job"]
        [fetching] = job["spec"]["template"]["spec"]["containers"]
        assert fetching["command"] == ["bash", "run.sh", "0", last]
        assert mounts(fetching) == mounts(container("server"))


def test_job_with_other_contents_has_another_name() -> None:
    def name(values: Values) -> str:
        [job] = [each for each in manifests(values) if each["kind"] == "Job"]
        return job["metadata"]["name"]

    assert name({}) == name({"server": {"replicas": 3}})
    assert name({}) != name({"server": {"revision": "main"}})


def test_versions_are_the_product_s() -> None:
    metadata = chart().metadata
    assert metadata["apiVersion"] == "v2"
    assert metadata["appVersion"] == metadata["version"] == __version__
    for component, ending in (("server", "gpu"), ("front", "front")):
        assert container(component)["image"] == f"cosyvoice2:{__version__}-{ending}"
    assert (
        container("server", nested("server.gpu.enabled", False))["image"] == f"cosyvoice2:{__version__}-cpu"
    )
    assert container("front", nested("front.image.tag", "a"))["image"] == "cosyvoice2:a"


def test_examples_are_those_that_the_readme_names() -> None:
    named = re.findall(r"\(examples/(\w+)\.yaml\)", (CHART / "README.md").read_text("utf-8"))
    assert sorted(named) == list(EXAMPLES)
    for name in EXAMPLES:
        assert example(name)
