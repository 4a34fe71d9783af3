"""``scripts/demo_fleet.py`` as people start it: servers, fronts, the addresses that it tells, and its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import grpc
from leftovers import leftovers

from cosyvoice_runtime.process import processes
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.preflight import ServerPorts
from eventually import eventually

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300.0
FREE = ServerSettings(http_port=0, grpc_port=0, metrics_port=0, model_metrics_port=0)
FRONT = """
import http.server, sys, signal
given = dict(word.removeprefix("front.").split("=", 1) for word in sys.argv[1:])
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(given["grpc_url"].encode())
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
http.server.HTTPServer(("127.0.0.1", int(given["port"])), Answer).serve_forever()
"""
PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, "scripts")
import demo_fleet
repository, demo_fleet.ROOT = Path(sys.argv.pop()), Path(sys.argv.pop())
demo_fleet.BUILD = demo_fleet.ROOT
demo_fleet.make_repository = lambda checkpoint, servers: repository
sys.exit(demo_fleet.main())
"""
FRONTS_ALONE = """
import sys, time
from pathlib import Path
sys.path.insert(0, "scripts")
import demo_fleet
from cosyvoice_runtime.settings import FrontSettings
demo_fleet.BUILD = demo_fleet.ROOT = Path(sys.argv[2])
given = demo_fleet.front_settings(FrontSettings(port=int(sys.argv[1])))
with demo_fleet.fronts(given, "127.0.0.1:1") as fronts:
    demo_fleet.wait_until_they_listen(given, fronts)
    print(*[front.pid for front in fronts], flush=True)
    time.sleep(600)
"""
SERVING = b"\x08\x01"


def test_fleet_speaks_at_its_addresses_and_leaves_nothing(repository, tmp_path):
    (tmp_path / "cosyvoice_front.py").write_text(FRONT)
    ports = ServerPorts.choose(FREE)
    port = ports.metrics
    variables = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "client")]),
        "COSYVOICE_FRONT__PORT": str(port),
        "COSYVOICE_SERVER__GRPC_PORT": str(ports.grpc),
        "COSYVOICE_SERVER__ENTRY_MODELS": "chain",
        **{f"COSYVOICE_SERVER__{name}_PORT": "0" for name in ("HTTP", "METRICS", "MODEL_METRICS")},
    }
    output = tmp_path / "fleet.log"
    command = [sys.executable, "-c", PROGRAM, "2", str(tmp_path), str(repository)]
    with output.open("wb") as file:
        fleet = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | variables, stdout=file, stderr=subprocess.STDOUT
        )
    try:
        eventually(lambda: fleet.poll() is not None or output.read_text().count("Ctrl-C ends it") == 2)
        assert fleet.poll() is None, output.read_text()
        for front in (port, port + 1):
            with urllib.request.urlopen(f"http://127.0.0.1:{front}/", timeout=TIMEOUT_S) as answer:
                addresses = answer.read().decode().split(",")
        assert addresses == [f"127.0.0.1:{ports.grpc + step}" for step in (100, 200)]
        with grpc.insecure_channel(f"127.0.0.1:{ports.grpc}") as channel:
            health = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=TIMEOUT_S)
        assert health == SERVING
        own = [each for each in processes.living() if each.parent == fleet.pid]
        fleet.send_signal(signal.SIGTERM)
        assert fleet.wait(TIMEOUT_S) == 0, output.read_text()
        assert len(own) > 6
        assert not any(processes.is_alive(each.pid) for each in own)
        assert leftovers(fleet.pid) == []
    finally:
        fleet.kill()
        fleet.wait()


def test_fronts_end_with_a_fleet_that_is_killed(tmp_path):
    (tmp_path / "cosyvoice_front.py").write_text(FRONT)
    port = ServerPorts.choose(FREE).http
    command = [sys.executable, "-c", FRONTS_ALONE, str(port), str(tmp_path)]
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "client")])}
    with subprocess.Popen(command, cwd=ROOT, env=os.environ | paths, stdout=subprocess.PIPE) as fleet:
        assert fleet.stdout is not None
        pids = [int(pid) for pid in fleet.stdout.readline().split()]
        fleet.kill()
    assert len(pids) == 2
    eventually(lambda: not any(map(processes.is_alive, pids)))
    eventually(lambda: leftovers(fleet.pid) == [])


def test_port_of_a_front_that_is_taken_is_told_before_anything_starts():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        own = os.environ | {"COSYVOICE_FRONT__PORT": str(taken.getsockname()[1])}
        command = [sys.executable, "scripts/demo_fleet.py", "2"]
        told = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True)
    assert told.returncode == 1
    assert "fleet: front.port: something else listens on 127.0.0.1" in told.stderr
