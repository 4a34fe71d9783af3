"""What a model's process shares with the server is closed to other users."""

from __future__ import annotations

import mmap
import os
import stat
import tempfile

from cosyvoice_runtime.serving.triton.load import close_shared_memory


def test_mapped_shared_memory_is_closed_and_other_files_stay_as_they_are():
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as shared, tempfile.NamedTemporaryFile() as other:
        for file in (shared, other):
            file.truncate(mmap.PAGESIZE)
        with mmap.mmap(shared.fileno(), 0), mmap.mmap(other.fileno(), 0):
            for file in (shared, other):
                os.chmod(file.name, 0o644)
            close_shared_memory()
            modes = [stat.S_IMODE(os.stat(file.name).st_mode) for file in (shared, other)]
    assert modes == [0o600, 0o644]
