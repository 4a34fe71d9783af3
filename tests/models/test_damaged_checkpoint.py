"""A server does not start with weights that are not what the checkpoint's checksums say."""

from __future__ import annotations

import shutil

import pytest

from cosyvoice_runtime.supervisor import StartError


def test_server_does_not_start_with_a_flipped_bit_in_a_weight(serve, tiny_checkpoint, tmp_path):
    checkpoint = shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")
    content = bytearray((checkpoint / "hift.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (checkpoint / "hift.pt").write_bytes(content)
    with (
        pytest.raises(StartError, match=r"hift.pt: damaged"),
        serve(["token2wav"], checkpoint_dir=checkpoint),
    ):
        pass
