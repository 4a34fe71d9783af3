"""What a command and its children do with files and sockets, as strace sees it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

TRACED = "connect,sendto,sendmsg,sendmmsg,bind,openat,open,creat,mkdir,mkdirat,rename,renameat,renameat2"
ADDRESS = re.compile(r'inet_addr\("([^"]+)"\)|inet_pton\(AF_INET6, "([^"]+)"')
WRITTEN = re.compile(
    r'(?:open(?:at)?\(.*?"([^"]*)", (?=[^)]*O_(?:WRONLY|RDWR|CREAT))'
    r'|(?:creat|mkdir|mkdirat|rename|renameat2?)\(.*"([^"]*)").*\) += (?!-1)'
)


def traced(command: list[str], file: Path) -> list[str]:
    """A command that leaves its system calls in a file; the command itself where there is no strace."""
    if not shutil.which("strace"):
        return command
    options = ["--seccomp-bpf", "--follow-forks", "--string-limit=4096", f"--trace={TRACED}"]
    return ["strace", *options, f"--output={file}", *command]


def addresses(file: Path) -> set[str]:
    """Addresses of the internet's families that were bound or sent to."""
    return {found[1] or found[2] for line in _lines(file) for found in ADDRESS.finditer(line)}


def written(file: Path) -> set[Path]:
    """Files and folders that were made or opened for writing."""
    return {Path(found[1] or found[2]) for line in _lines(file) if (found := WRITTEN.search(line))}


def _lines(file: Path) -> list[str]:
    return file.read_text(errors="replace").splitlines()
