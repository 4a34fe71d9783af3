"""Voices of references are forgotten in time by a thread that nobody waits for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cosyvoice_runtime.voice import VoiceStore
from cosyvoice_runtime.voice.removal import DAY_S, forget_in_time
from eventually import eventually
from fake_voices import CHECKPOINT, make_voice


@pytest.mark.parametrize(
    ("days", "left"), [(0.0, ["ann"]), (1.0, ["ann", "used"]), (9.0, ["ann", "used", "old"])]
)
def test_unnamed_voices_stay_for_so_many_days_after_their_last_use(
    tmp_path: Path, days: float, left: list[str]
) -> None:
    store = VoiceStore(tmp_path, CHECKPOINT)
    voices = {"ann": make_voice(0), "used": make_voice(1), "old": make_voice(2)}
    store.register("ann", voices["ann"])
    for name in ("used", "old"):
        store.put(voices[name])
    path = tmp_path / "voices" / f"{voices['old'].key}.safetensors"
    seconds = path.stat().st_mtime - 2 * DAY_S
    os.utime(path, (seconds, seconds))
    forget_in_time(store, days * DAY_S)
    eventually(lambda: {entry.key for entry in store.entries()} == {voices[name].key for name in left})
