"""The hubs that the published checkpoints lie on: what they offer, and what of it is fetched."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from cosyvoice_runtime.checkpoint.layout import SPEAKERS, needed_files
from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.families import Family

SPARE_BYTES = 100 << 20
"""Room on the disk for notes and unfinished files of the hub's client."""


class FetchError(CosyVoiceError):
    """The checkpoint could not be had from the source."""


class UnreachableError(FetchError):
    """The hub gives no answer, so nothing was written."""


class File(NamedTuple):
    """One that a hub has: its size in bytes, and its SHA-256 where the hub tells it."""

    size: int
    sha256: str | None


class Offer(NamedTuple):
    """Files of a family's repository on a hub.

    Attributes:
        repository: its name there.
        revision: the commit, branch or tag; None is ModelScope's newest.
        licence: as the hub tells it, otherwise as the family's description does.
        files: all of the repository, by name.
        download: fills a directory with the files of these names.
    """

    repository: str
    revision: str | None
    licence: str
    files: dict[str, File]
    download: Callable[[Path, list[str]], None]

    def read_files(self, family: Family, others: Iterable[str] = ()) -> dict[str, File]:
        """Those that are read of the family's.

        Args:
            others: names that come from elsewhere.

        Raises:
            FetchError: the hub lacks some.
        """
        chosen, missing = [], []
        for names in needed_files(family):
            name = next((name for name in names if name in self.files), None)
            if name:
                chosen.append(name)
            elif not set(names) & set(others):
                missing.append(" or ".join(names))
        if missing:
            raise FetchError(f"{self} lacks {', '.join(missing)}")
        return {name: self.files[name] for name in [*chosen, SPEAKERS] if name in self.files}

    def __str__(self) -> str:
        return f"{self.repository} at {self.revision or 'its newest revision'}"


def on_hugging_face(family: Family, revision: str | None) -> Offer:
    """The commit that a revision is there; of None the newest.

    Raises:
        UnreachableError: the hub gives no answer.
        FetchError: it does not have that repository or revision, or refuses it.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    repository = family.published.hugging_face
    try:
        found: Any = HfApi().repo_info(repository, revision=revision, files_metadata=True)
    except HfHubHTTPError as error:
        raise FetchError(f"Hugging Face refuses {repository} ({told(error)})") from error
    except Exception as error:  # releases of its client differ in the HTTP library, whose errors come through
        raise UnreachableError(f"Hugging Face can't be reached ({told(error)})") from error
    commit = str(found.sha)
    return Offer(
        repository,
        commit,
        (found.card_data and found.card_data.get("license")) or family.published.licence,
        {each.rfilename: File(each.size or 0, each.lfs and each.lfs.sha256) for each in found.siblings},
        lambda out, names: _ignored(
            snapshot_download(repository, revision=commit, local_dir=out, allow_patterns=names)
        ),
    )


def on_model_scope(family: Family, revision: str | None) -> Offer:
    """Return ModelScope's offer of a family's checkpoint.

    Raises:
        FetchError: its client is not installed, or the hub refuses or gives no answer.
    """
    try:
        from modelscope import snapshot_download
        from modelscope.hub.api import HubApi
    except ImportError as error:
        raise FetchError("the package modelscope is not installed: pip install modelscope") from error
    repository = family.published.model_scope
    try:
        found = HubApi().get_model_files(repository, revision=revision, recursive=True)
    except Exception as error:  # its errors have no common base
        raise FetchError(f"ModelScope does not tell of {repository} ({told(error)})") from error
    return Offer(
        repository,
        revision,
        family.published.licence,
        {each["Path"]: File(each.get("Size") or 0, each.get("Sha256")) for each in found},
        lambda out, names: _ignored(
            snapshot_download(repository, revision=revision, local_dir=str(out), allow_file_pattern=names)
        ),
    )


def require_room(out: Path, files: dict[str, File]) -> None:
    """Raise a FetchError where the disk has no room for what is still to come."""
    there = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    needed = sum(file.size for file in files.values()) - there + SPARE_BYTES
    place = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    free = shutil.disk_usage(place).free
    if needed > free:
        raise FetchError(
            f"{out}: {gigabytes(needed)} are still to come, and {place} has {gigabytes(free)} free"
        )


def gigabytes(size: int) -> str:
    """A size in bytes for people."""
    return f"{size / 1e9:.2f} GB" if size >= 1e7 else f"{size / 1e3:.0f} kB"


def told(error: Exception) -> str:
    """An error of somebody else's code, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _ignored(_: object) -> None:
    """Drop the answer of a download, which is the directory."""
