"""A bucket that speaks S3, for tests that are skipped where its server isn't installed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from drills.bucket import PACKAGE, Bucket


@contextmanager
def running_bucket(folder: Path) -> Iterator[Bucket]:
    try:
        distribution(PACKAGE)
    except PackageNotFoundError:
        pytest.skip(f"needs {PACKAGE}: pip install --no-deps -r requirements/fleet.txt")
    bucket = Bucket("bucket", folder)
    try:
        bucket.start()
        yield bucket
    finally:
        bucket.close()


def fresh_url(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> str:
    """A prefix of its own in a bucket that runs; the environment says where it is."""
    if not bucket.running:
        bucket.start()
    for name, value in bucket.variables().items():
        monkeypatch.setenv(name, value)
    return f"{bucket.url}/{uuid.uuid4().hex}/voices"


def objects(url: str) -> list[str]:
    """All objects, but for those of deleted names."""
    from cosyvoice_runtime.voice import bucket  # which needs obstore

    seen = bucket.Bucket(url)
    return sorted(each["path"] for each in seen._listed("") if each["size"])
