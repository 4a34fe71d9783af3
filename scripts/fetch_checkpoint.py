#!/usr/bin/env python3
"""Stage 0: put a checkpoint where the other stages look for it, and check it.

    fetch_checkpoint.py OUT                       the published CosyVoice2-0.5B; without a network demo_voice/
    fetch_checkpoint.py OUT --source huggingface  or modelscope, made, or a directory of your own
    fetch_checkpoint.py OUT --family cosyvoice3   the published Fun-CosyVoice3-0.5B, or with cosyvoice300m
                                                  CosyVoice-300M and whisper's vocabulary from GitHub
    fetch_checkpoint.py OUT --revision COMMIT     not the newest that a hub has

A directory that already holds a checkpoint, of any family, is left alone. A download that was interrupted
goes on when it is asked for again. The demo voice, where it stands in for the published checkpoint, gives way
when a hub is named as the source.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import logging
import os
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cosyvoice_runtime.checkpoint import Layout, verify_checkpoint
from cosyvoice_runtime.checkpoint.checksums import FILE_NAME, require_checksum, write_checksums
from cosyvoice_runtime.errors import CheckpointError, CosyVoiceError
from cosyvoice_runtime.families import DEFAULT, FAMILIES, Family
from hubs import (
    FetchError,
    File,
    Offer,
    UnreachableError,
    gigabytes,
    on_hugging_face,
    on_model_scope,
    require_room,
    told,
)

DEMO_VOICE = Path(__file__).resolve().parent.parent / "demo_voice"
UNFINISHED = ".unfinished-download"
"""File in a directory whose download has begun and not ended; it names the family."""


DOWNLOAD_TIMEOUT_S = 60


def from_hugging_face(out: Path, family: Family, revision: str | None = None) -> None:
    """Download the published checkpoint.

    Raises:
        UnreachableError: the hub gives no answer.
        FetchError: it refuses or lacks files, the disk has no room, or the download breaks off; what has come
            by then is kept.
    """
    offer = on_hugging_face(family, revision)
    download(out, family, offer)
    print(f"{out}: {offer}, which --revision {offer.revision} fetches again")


def from_model_scope(out: Path, family: Family, revision: str | None = None) -> None:
    """Download the published checkpoint from its other home.

    Raises:
        FetchError: as of Hugging Face; nothing is written where the hub gives no answer.
    """
    download(out, family, on_model_scope(family, revision))


def download(out: Path, family: Family, offer: Offer) -> None:
    """Fetch those files of an offer that are read, and tell which they are.

    Raises:
        FetchError: the hub lacks some, the disk has no room, or the download breaks off.
    """
    brought = (family.vocabulary,) if family.vocabulary_source else ()
    files = offer.read_files(family, brought)
    require_room(out, files)
    tell(offer, files)
    with downloading(out, family, offer.repository):
        offer.download(out, list(files))
        complete(out, family, {name: file.sha256 for name, file in files.items() if file.sha256})


def tell(offer: Offer, files: dict[str, File]) -> None:
    """Print what comes, and under which licence."""
    total, all_ = (sum(file.size for file in each.values()) for each in (files, offer.files))
    print(f"{offer}, licence {offer.licence}: {gigabytes(total)} of {gigabytes(all_)} are read and fetched")
    for name, file in files.items():
        print(f"  {gigabytes(file.size):>8}  {name}")


@contextmanager
def downloading(out: Path, family: Family, repository: str) -> Iterator[None]:
    """A block that downloads into ``out``, which is marked as unfinished until the block has ended well.

    Raises:
        FetchError: the block has failed, or another family's download is unfinished there.
    """
    mark = out / UNFINISHED
    if stands_in(out):
        out.unlink()
    out.mkdir(parents=True, exist_ok=True)
    if mark.exists() and mark.read_text("utf-8") != family.name:
        begun = mark.read_text("utf-8")
        raise FetchError(f"{out}: an unfinished download of {begun} is there: finish or remove that first")
    mark.write_text(family.name, "utf-8")
    try:
        yield
    except FetchError:
        raise
    except Exception as error:  # of a hub, its HTTP library, the transfer, the disk: they have no common base
        raise FetchError(
            f"{repository}: the download has broken off ({told(error)}); {out} keeps what has come, and the "
            "same command goes on with it"
        ) from error
    mark.unlink()


def complete(out: Path, family: Family, published: Mapping[str, str]) -> None:
    """Add to a download what it lacks, and the list of checksums that later starts go by.

    Args:
        published: SHA-256 by name, as far as the publisher tells them.

    Raises:
        FetchError: a file is missing after all.
    """
    add_vocabulary(out, family)
    if missing := Layout(out).missing():
        raise FetchError(f"{out}: {', '.join(missing)} did not come with the download; ask for it again")
    list_checksums(out, published)


def add_vocabulary(out: Path, family: Family) -> None:
    """Put the text tokenizer's vocabulary beside a checkpoint that was published without it.

    Raises:
        FetchError: it can't be had; says which file is to be put where.
    """
    path = out / family.vocabulary
    if family.vocabulary_source is None or path.exists():
        return
    url, sha256 = family.vocabulary_source
    try:
        with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT_S) as answer:
            content = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise FetchError(f"{path}: {url} can't be had ({error}): put this file there") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise FetchError(f"{path}: {url} is another file than it was: SHA-256 {sha256} is expected")
    arriving = path.with_suffix(".part")
    arriving.write_bytes(content)
    arriving.replace(path)


def list_checksums(out: Path, published: Mapping[str, str]) -> None:
    """Write the list of checksums that later starts go by, unless the checkpoint brings its own."""
    if not (out / FILE_NAME).exists():
        write_checksums(out, Layout(out).names(), published)


def made(out: Path, family: Family) -> None:
    """Write a small checkpoint with random weights: it runs, it does not speak."""
    try:
        from making import make_checkpoint
    except ImportError as error:
        raise FetchError(f"making one needs torch: scripts/environment.py --torch ({error})") from error

    make_checkpoint(out, "tiny", seed=0, family=family.name)


def published_or_demo_voice(out: Path, family: Family, revision: str | None = None) -> None:
    """The published checkpoint; of CosyVoice2, where no hub answers and nothing is there, this repository's.

    Raises:
        FetchError: there is neither.
    """
    try:
        from_hugging_face(out, family, revision)
    except UnreachableError as error:
        if family is not DEFAULT or revision or not is_vacant(out):
            raise
        link(DEMO_VOICE, out)
        print(f"WARNING: {error}. {STAND_IN.format(out=out)}", file=sys.stderr)


STAND_IN = (
    "{out} is the demo voice and not the published checkpoint: it is small and speaks only English; "
    "--source huggingface (SOURCE=huggingface ./run.sh 0) puts the published one there"
)
HUBS: dict[str, Callable[[Path, Family, str | None], None]] = {
    "auto": published_or_demo_voice,
    "huggingface": from_hugging_face,
    "modelscope": from_model_scope,
}
MADE = "made"


def link(directory: Path, out: Path) -> None:
    """Use a directory in place.

    Raises:
        FetchError: something else stands where the link is to be.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if is_vacant(out) and out.exists():
            out.rmdir()
        os.symlink(directory.resolve(), out, target_is_directory=True)
    except OSError as error:
        raise FetchError(f"{out} can't become a link to {directory}: {error.strerror}") from error


def is_vacant(out: Path) -> bool:
    """Whether nothing is there, or an empty directory."""
    return not os.path.lexists(out) or (out.is_dir() and not any(out.iterdir()))


def stands_in(out: Path) -> bool:
    """Whether it is a link to the demo voice."""
    return out.is_symlink() and out.resolve() == DEMO_VOICE


def fetch(out: Path, source: str, family: Family = DEFAULT, revision: str | None = None) -> None:
    """Make ``out`` a checked checkpoint of the family, unless it holds one of any.

    Args:
        source: a name in :data:`HUBS`, ``made``, or a directory.
        revision: a commit, branch or tag of a hub's repository; None is the newest.

    Raises:
        FetchError: the source has none, or what is there is damaged or incomplete.
    """
    if revision and source not in HUBS:
        raise FetchError(f"revision: {revision!r} is not accepted with the source {source}, which has none")
    if is_there(out, source):
        require_whole(out)
        expected = source not in HUBS or not stands_in(out)
        print(f"{out}: a checkpoint is there, nothing to do" if expected else STAND_IN.format(out=out))
        return
    if source in HUBS:
        HUBS[source](out, family, revision)
    elif source == MADE:
        made(out, family)
    elif Path(source).is_dir():
        link(Path(source), out)
    else:
        raise FetchError(f"{source} is neither a directory nor one of {', '.join([*HUBS, MADE])}")
    problems = verify_checkpoint(out)
    if problems:
        raise FetchError("\n".join([f"{out} can't be used:", *problems]))
    print(f"{out}: complete")


def is_there(out: Path, source: str) -> bool:
    """Whether a checkpoint stands there that the source is not to go on with or to replace.

    Raises:
        FetchError: a download is unfinished there, and the source can't go on with it.
    """
    if (out / UNFINISHED).exists():
        if source in HUBS:
            return False
        raise FetchError(
            f"{out}: an unfinished download is there: finish it ({', '.join(HUBS)}), or remove the directory"
        )
    if stands_in(out) and source in HUBS and source != "auto":
        return False
    return any((out / family.config_file).exists() for family in FAMILIES)


def require_whole(out: Path) -> None:
    """Raise a FetchError where a file is missing, or not what the checkpoint's list of checksums says."""
    if missing := Layout(out).missing():
        raise FetchError(
            f"{out} is incomplete: {', '.join(missing)} missing; put that there, or name another "
            "directory to fetch a checkpoint into"
        )
    require_listed(out)


def require_listed(out: Path) -> None:
    """Raise a FetchError where a file is not what the checkpoint's list of checksums says."""
    problems = []
    for name in Layout(out).names():
        try:
            require_checksum(out, name)
        except CheckpointError as error:
            problems.append(str(error))
    if problems:
        raise FetchError("\n".join(problems))


def main(arguments: list[str] | None = None) -> int:
    families = {family.name: family for family in FAMILIES}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="directory to make")
    parser.add_argument("--source", default="auto", help="default: %(default)s")
    parser.add_argument("--family", choices=list(families), default=DEFAULT.name, help="default: %(default)s")
    parser.add_argument("--revision", help="commit, branch or tag of a hub's repository; default: the newest")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        fetch(options.out, options.source, families[options.family], options.revision)
    except (CosyVoiceError, OSError) as error:
        print(f"fetch_checkpoint: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
