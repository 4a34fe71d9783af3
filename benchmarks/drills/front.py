"""A front of the fleet, as a process of its own."""

from __future__ import annotations

import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from drills.ports import free_port
from drills.program import Program
from drills.waiting import wait_until

TIMEOUT_S = 30.0


class Front(Program):
    """
    Attributes:
        port: of HTTP, the same after a restart.
        url: where it listens.
    """

    def __init__(
        self, name: str, folder: Path, grpc_url: str, variables: Mapping[str, str], **settings: object
    ) -> None:
        self._variables = variables
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        given = {"port": self.port, "grpc_url": grpc_url, "leave_s": 0, **settings}
        assignments = [f"{key if '.' in key else f'front.{key}'}={value}" for key, value in given.items()]
        super().__init__(name, folder, [sys.executable, "-m", "cosyvoice_front", *assignments])

    def environment(self) -> Mapping[str, str]:
        return {**os.environ, **self._variables}

    def answers(self) -> bool:
        return self.says("/health")

    @property
    def ready(self) -> bool:
        """Whether it says that it takes requests."""
        return self.says("/health/ready")

    def number(self, name: str, *labels: str, key: str = "none") -> float:
        """The sum of a metric over its series that have all of these labels, such as ``ending="resumed"``."""
        asked = urllib.request.Request(f"{self.url}/metrics", headers={"Authorization": f"Bearer {key}"})
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as page:
            lines = page.read().decode().splitlines()
        found = [line.rpartition(" ") for line in lines if re.match(rf"{name}[ {{]", line)]
        return sum(float(value) for series, _, value in found if all(label in series for label in labels))

    def wait_until_ready(self) -> None:
        """Return when it is connected with its servers."""
        wait_until(lambda: self.ready, f"{self.name} is not ready")

    def says(self, path: str) -> bool:
        """Whether a page is answered with 200."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=TIMEOUT_S) as page:
                return page.status == 200
        except (OSError, urllib.error.HTTPError):
            return False
