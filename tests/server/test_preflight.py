"""Each reason not to start is one sentence that says what to do."""

from __future__ import annotations

import socket
import sys

import pytest

from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor import PreflightError, Server, preflight
from cosyvoice_runtime.supervisor.preflight import (
    FREE_PORTS,
    QUEUES,
    QUEUES_VARIABLE,
    ServerPorts,
    WheelTriton,
    find_triton,
    repository_problems,
)


def test_this_environment_can_run_the_server():
    assert find_triton().problems() == []


def test_missing_libpython_is_named_with_its_package(monkeypatch):
    monkeypatch.setattr(preflight, "LIBRARY", "libpython3.99.so.1.0")
    (problem,) = find_triton().problems()
    assert problem.startswith(
        "libpython3.99.so.1.0 is missing, without which the server hangs: install the package libpython3."
    )


@pytest.mark.parametrize("version", ["2.0.0", "2.4.1", "none"])
def test_numpy_2_and_none_are_refused(version, monkeypatch):
    monkeypatch.setattr(preflight, "_version", lambda package: version)
    (problem,) = find_triton().problems()
    assert problem.startswith(f"numpy 1.26 is needed, {sys.executable} has {version}")


def test_python_without_stub_is_refused_with_the_known_versions(monkeypatch):
    monkeypatch.setattr(preflight, "PYTHON_VERSION", "3.99")
    (problem,) = find_triton().problems()
    assert problem.startswith("nvidia-pytriton has no Python 3.99, only 3.10")


def test_container_server_is_used_where_the_package_is_missing(tmp_path, monkeypatch):
    assert isinstance(find_triton(), WheelTriton)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    binary = tmp_path / "tritonserver"
    with pytest.raises(PreflightError, match=r"there is no tritonserver: .* lacks nvidia-pytriton and"):
        find_triton(binary)
    binary.touch()
    assert find_triton(binary).binary == binary
    assert find_triton(binary).problems() == []


def test_taken_port_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = ServerPorts.choose(
            ServerSettings(http_port=port, grpc_port=0, metrics_port=0, model_metrics_port=0)
        )
        (problem,) = ports.problems
    assert problem.startswith(f"http_port {port} on 127.0.0.1 can't be used (Address already in use)")


def test_equal_ports_are_refused():
    (problem,) = ServerPorts.choose(ServerSettings(http_port=9000, grpc_port=9000)).problems
    named = "http_port, grpc_port, metrics_port, model_metrics_port"
    assert problem == f"{named} must differ, they are [9000, 9000, 8002, 8003]"


def test_free_ports_differ():
    ports = ServerPorts.choose(ServerSettings(http_port=0, grpc_port=0, metrics_port=0, model_metrics_port=0))
    assert len({ports.http, ports.grpc, ports.metrics, ports.model_metrics}) == 4
    assert {ports.http, ports.grpc, ports.metrics, ports.model_metrics} <= set(FREE_PORTS)
    assert ports.problems == []


@pytest.mark.parametrize(
    ("host", "url"), [("0.0.0.0", "127.0.0.1:7"), ("::", "[::1]:7"), ("127.0.0.2", "127.0.0.2:7")]
)
def test_url_reaches_the_server_from_this_machine(host, url):
    assert ServerPorts(host, 1, 2, 3, 4).url(7) == url


def test_too_little_shared_memory_is_measured(repository, settings, monkeypatch):
    monkeypatch.setattr(preflight, "NEEDED_SHARED_MIB", 1_048_576)
    with pytest.raises(PreflightError, match=r"/dev/shm has \d+ MiB free and 1048576 are needed: enlarge it"):
        Server(repository, settings).start()


def test_empty_repository_says_what_to_do(tmp_path):
    assert repository_problems(tmp_path) == [f"{tmp_path} holds no model: render the model repository first"]


def test_unrendered_template_is_recognised(repository):
    configuration = repository / "count" / "config.pbtxt"
    configuration.write_text("max_batch_size: ${max_batch}")
    assert repository_problems(repository) == [
        f"{configuration} is a template still (${{max_batch}}): render the model repository"
    ]


def test_missing_version_directory_is_named(repository):
    (repository / "count" / "1").rename(repository / "count" / "first")
    (problem,) = repository_problems(repository)
    assert problem.endswith("count has no version directory such as count/1")


def test_missing_checkpoint_is_named(repository):
    with (repository / "count" / "config.pbtxt").open("a") as configuration:
        configuration.write(
            'parameters { key: "checkpoint_dir" value: { string_value: "/nowhere/checkpoint" } }\n'
        )
    assert repository_problems(repository) == [
        "count: its checkpoint_dir /nowhere/checkpoint is no directory"
    ]


def test_bucket_that_does_not_answer_is_named(repository, monkeypatch):
    pytest.importorskip("obstore", reason="needs obstore: pip install -r requirements/cpu.txt")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with (repository / "count" / "config.pbtxt").open("a") as configuration:
        configuration.write(
            'parameters { key: "voices_url" value: { string_value: "s3://speech/voices" } }\n'
        )
    (problem,) = repository_problems(repository)
    assert problem.startswith(
        "cosyvoice2.voices_url: 's3://speech/voices' is not accepted; a bucket that is there, can be "
        "written, and has conditional writes (If-None-Match and If-Match) is expected: Generic S3 error: "
    )


def test_receiver_of_spans_that_can_not_be_one_is_named(monkeypatch):
    assert preflight.span_problems() == []
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector/4317")
    (problem,) = preflight.span_problems()
    assert problem.startswith(
        "OTEL_EXPORTER_OTLP_ENDPOINT: 'collector/4317' is not accepted; http://HOST:PORT"
    )


def test_all_problems_are_told_at_once(tmp_path, settings, monkeypatch):
    monkeypatch.setattr(preflight, "NEEDED_SHARED_MIB", 1_048_576)
    with pytest.raises(PreflightError) as caught:
        Server(tmp_path, settings).start()
    assert len(caught.value.problems) == 2


def test_probe_file_without_probe_is_named(repository, settings):
    path = repository / "count" / "probe.json"
    path.write_text('{"input": {}}')
    with pytest.raises(PreflightError, match=f"{path} is no probe"):
        Server(repository, settings)


@pytest.mark.parametrize("inherited", [None, "8"])
def test_models_have_many_queues_to_a_gpu_unless_somebody_says_how_many(inherited):
    variables = {} if inherited is None else {QUEUES_VARIABLE: inherited}
    assert find_triton().environment(variables)[QUEUES_VARIABLE] == (inherited or str(QUEUES))
