"""The library as a server speaks: it cuts references alike for an early first chunk."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from cosyvoice_runtime.engine.utterance.hop import MOST_CUT
from cosyvoice_runtime.local import Synthesizer


def served_library(checkpoint: Path, **options: Any) -> Synthesizer:
    library = Synthesizer.from_checkpoint(checkpoint, **options)
    library.hop = dataclasses.replace(library.hop, most_cut=MOST_CUT)
    return library
