"""The voices that the settings name: in a folder, or with their names in a bucket."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.voice.cached_voices import CachedVoices
from cosyvoice_runtime.voice.store import VoiceStore

if TYPE_CHECKING:
    from cosyvoice_runtime.voice.bucket_voices import BucketVoices

CACHE = "bucket"
"""Folder of what a server has read of a bucket, within that of its own voices."""


def open_voices(
    directory: Path,
    bucket_url: str | None,
    checkpoint_id: str,
    *,
    max_voices: int = 1000,
    max_bytes: int = 1 << 30,
    keeps_unnamed: bool = True,
    grace_s: float = 0.0,
    on_grace: Callable[[], object] = lambda: None,
) -> VoiceStore | CachedVoices:
    """The voices of a server; an InvalidInput tells what is wrong with the address of the bucket.

    Args:
        directory: of all voices, or with a bucket of the server's own, and of what it has read.
        max_voices, max_bytes, keeps_unnamed: as of :class:`VoiceStore`.
        grace_s: how long a name of the bucket stands while that is away, from when it was last asked for.
        on_grace: called with each use of such a name.
    """
    limit = partial(VoiceStore, checkpoint_id=checkpoint_id, max_voices=max_voices, max_bytes=max_bytes)
    own = limit(directory, keeps_unnamed=keeps_unnamed)
    if bucket_url is None:
        return own
    shared = open_bucket(bucket_url, grace_s=grace_s, on_grace=on_grace)
    return CachedVoices(shared, own, limit(directory / CACHE), checkpoint_id)


def open_bucket(
    url: str,
    *,
    check: bool = False,
    grace_s: float = 0.0,
    on_grace: Callable[[], object] = lambda: None,
) -> BucketVoices:
    """The voices of a bucket.

    Args:
        check: whether the bucket is tried; otherwise it may be away.
        grace_s, on_grace: as of :func:`open_voices`.

    Raises:
        InvalidInput: it can't be used, or obstore is not installed.
    """
    if find_spec("obstore") is None:
        raise InvalidInput("cosyvoice2.voices_url", url, "it needs a package: pip install obstore==0.12.1")
    from cosyvoice_runtime.voice.bucket import Bucket
    from cosyvoice_runtime.voice.bucket_voices import BucketVoices

    bucket = Bucket(url, grace_s, on_grace)
    if check:
        bucket.check()
    return BucketVoices(bucket)
