"""The samples of TLS proxies in ``deploy/``, run as they are, but for names, ports and certificates."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
TIMEOUT_S = 60.0
NAME, CERTIFICATES = "speech.example.com", "/etc/ssl/speech/"
FRONT, GRPC = "127.0.0.1:8080", "127.0.0.1:8001"
NGINX = """
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/log;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/sample.conf;
}}
"""
CADDY = "{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n"


class TlsProxy(NamedTuple):
    """
    Attributes:
        http, grpc: ports, with TLS.
        certificate: file by which clients know it.
    """

    http: int
    grpc: int
    certificate: Path

    @property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.certificate))


@contextmanager
def tls_proxy(kind: str, front_port: int, grpc_port: int, folder: Path) -> Iterator[TlsProxy]:
    """``nginx`` or ``caddy`` before these ports. Skips the test where it is absent."""
    program = shutil.which(kind)
    if program is None or shutil.which("openssl") is None:
        pytest.skip(f"needs {kind} and openssl: apt install {kind} openssl")
    make_certificate(folder)
    proxy = TlsProxy(*free_ports(2), folder / "fullchain.pem")
    write = {"nginx": write_nginx, "caddy": write_caddy}[kind]
    upstreams = {FRONT: f"127.0.0.1:{front_port}", GRPC: f"127.0.0.1:{grpc_port}"}
    arguments = write(folder, proxy, upstreams)
    environment = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "PATH": "/usr/bin:/bin"}
    with (folder / "output").open("wb") as output:
        running = subprocess.Popen(
            [program, *arguments], stdout=output, stderr=subprocess.STDOUT, env=environment
        )
    try:
        for port in (proxy.http, proxy.grpc):
            wait_until_open(port, running, folder)
        yield proxy
    finally:
        running.kill()
        running.wait(TIMEOUT_S)


def write_nginx(folder: Path, proxy: TlsProxy, upstreams: dict[str, str]) -> list[str]:
    sample = (DEPLOY / "nginx.conf").read_text("utf-8")
    ports = {"listen 443 ": f"listen {proxy.http} ", "listen 8443 ": f"listen {proxy.grpc} "}
    sample = replaced(sample, {**upstreams, **ports, CERTIFICATES: f"{folder}/", NAME: "localhost"})
    (folder / "sample.conf").write_text(sample, encoding="utf-8")
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder), encoding="utf-8")
    return ["-c", str(folder / "nginx.conf"), "-e", str(folder / "log")]


def write_caddy(folder: Path, proxy: TlsProxy, upstreams: dict[str, str]) -> list[str]:
    tls = f"\n\ttls {folder}/fullchain.pem {folder}/privkey.pem\n"
    sites = {
        f"\n{NAME} {{\n": f"\nlocalhost:{proxy.http} {{{tls}",
        f"\n{NAME}:8443 {{\n": f"\nlocalhost:{proxy.grpc} {{{tls}",
    }
    sample = replaced((DEPLOY / "Caddyfile").read_text("utf-8"), {**upstreams, **sites})
    (folder / "Caddyfile").write_text(CADDY + sample, encoding="utf-8")
    return ["run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


def replaced(text: str, changes: dict[str, str]) -> str:
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    return text


def make_certificate(folder: Path) -> None:
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost "
        "-addext subjectAltName=DNS:localhost -keyout privkey.pem -out fullchain.pem"
    )
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)


def free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports


def wait_until_open(port: int, running: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S).close()
            return
        except OSError:
            said = (folder / "output").read_text() + "".join(path.read_text() for path in folder.glob("log"))
            assert running.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.02)
