"""From start to stop, with everything in between going well or not."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from leftovers import leftovers

from cosyvoice_runtime.process import processes
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor import Server, StartError
from cosyvoice_runtime.supervisor.calls import ProbeError
from cosyvoice_runtime.supervisor.errors import StopRequestedError
from cosyvoice_runtime.supervisor.gateway_process import GatewayProcess
from cosyvoice_runtime.supervisor.models import awaited_processes
from cosyvoice_runtime.supervisor.process import LogFile, ServerProcess


def write_model(repository: Path, name: str, body: str) -> None:
    """A model whose ``initialize`` runs ``body``."""
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(
        'backend: "python"\nmax_batch_size: 0\n'
        'input [ { name: "X" data_type: TYPE_INT32 dims: [ 1 ] } ]\n'
        'output [ { name: "Y" data_type: TYPE_INT32 dims: [ 1 ] } ]\n'
    )
    (repository / name / "1" / "model.py").write_text(
        "class TritonPythonModel:\n"
        f"    def initialize(self, args):\n        {body}\n"
        "    def execute(self, requests):\n        return []\n"
    )


def test_stop_leaves_no_process_no_shared_memory_and_no_folder(repository, settings, count):
    with Server(repository, settings) as server:
        assert count(server, "chain", 3).rest() == [0, 1, 2]
        assert len(leftovers()) >= 6  # a server and two models, two regions, a folder
    assert leftovers() == []
    assert server.drained


def test_two_servers_do_not_disturb_each_other(repository, settings, count, tmp_path):
    other_settings = settings.replace(log_file=tmp_path / "other.log")
    with Server(repository, settings) as server:
        with Server(repository, other_settings) as other:
            assert other.grpc_url != server.grpc_url
            assert count(other, "chain", 2).rest() == [0, 1]
        assert count(server, "chain", 3).rest() == [0, 1, 2]


def test_model_that_fails_to_load_is_named_with_its_own_error(repository, settings):
    write_model(repository, "broken", "raise ValueError('weights are missing')")
    with pytest.raises(StartError, match=r"(?s)broken did not load.*weights are missing"):
        Server(repository, settings).start()
    assert leftovers() == []


def test_model_that_loads_but_does_not_answer_fails_the_start(repository, settings):
    def fail(url: str, timeout_s: float) -> None:
        raise ProbeError(f"count: no answer from {url} in {timeout_s:.0f} s")

    server = Server(repository, settings, probes={"count": fail})
    with pytest.raises(StartError, match=r"count did not answer: count: no answer from unix:\S+ in 60 s"):
        server.start()


def test_stop_request_ends_a_start_that_takes_long(repository, settings, eventually):
    write_model(repository, "slow", "import time; time.sleep(60)")
    server = Server(repository, settings)
    outcome: list[type[BaseException]] = []

    def start() -> None:
        try:
            server.start()
        except StopRequestedError as error:
            outcome.append(type(error))

    thread = threading.Thread(target=start)
    thread.start()
    eventually(lambda: settings.log_file.exists() and "loading: slow" in settings.log_file.read_text())
    server.request_stop()
    thread.join(180)
    assert not thread.is_alive()
    assert outcome == [StopRequestedError]
    assert leftovers() == []


def test_process_that_was_silent_while_it_started_is_started_once_more(
    repository, settings, eventually, tmp_path, caplog
):
    """Triton 24.10 takes it for dead after a second, and waits for its end, which does not come."""
    begun, may_end = tmp_path / "begun", tmp_path / "may end"
    waits = f"[time.sleep(0.05) for _ in iter(Path({str(may_end)!r}).exists, True)]"
    write_model(
        repository, "slow", f"import time; from pathlib import Path; Path({str(begun)!r}).touch(); {waits}"
    )
    server = Server(repository, settings)
    with ThreadPoolExecutor(1) as pool:
        start = pool.submit(server.start)
        try:
            eventually(begun.exists)
            [stub] = [
                member for member in processes.session_members(server.session) if member.model == "slow"
            ]
            os.kill(stub.pid, signal.SIGSTOP)
            eventually(lambda: awaited_processes(server.session, "slow") == {stub.pid})
            os.kill(stub.pid, signal.SIGCONT)
            may_end.touch()
            start.result()
            assert "slow: Triton gave up its process" in caplog.text
        finally:
            server.request_stop()
            server.stop()


def test_start_gives_up_when_the_time_is_over(repository, settings):
    write_model(repository, "slow", "import time; time.sleep(60)")
    with pytest.raises(StartError, match="not up within 2 s"):
        Server(repository, settings.replace(start_timeout_s=2.0)).start()


@pytest.mark.parametrize(
    ("of", "what", "failure"),
    [
        (ServerProcess, "spawn", OSError(12, "Cannot allocate memory")),
        (GatewayProcess, "_start", OSError(12, "Cannot allocate memory")),
        (LogFile, "begin", RuntimeError("can't start new thread")),
    ],
    ids=["server", "gateway", "thread"],
)
def test_start_without_room_for_it_says_so_and_leaves_nothing(
    repository, settings, monkeypatch, of, what, failure
):
    def no_room(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(of, what, no_room)
    with pytest.raises(StartError, match=rf"the server can't be started: .*{failure.args[-1]}"):
        Server(repository, settings).start()
    assert leftovers() == []


def test_models_without_probe_start_with_a_warning(repository, settings: ServerSettings, caplog):
    (repository / "count" / "probe.json").unlink()
    with Server(repository, settings):
        assert "count has no probe" in caplog.text
