"""Speech recognisers of the user's choice, by the name of their class."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.audio.resample import resample
from measuring.heard import RATE
from measuring.workload import WorkloadError

Recognise = Callable[[Floats, int], str]
"""A recogniser: float32 samples ``[n]`` and their rate become a text."""
HELP = (
    "a class without arguments whose objects turn float32 samples of 16 kHz into text, "
    "such as measuring.heard:Recogniser (pip install pocketsphinx)"
)


def recogniser(name: str) -> Recognise:
    """Make an object of the class ``MODULE:CLASS``.

    Raises:
        WorkloadError: there is no such class, or a package that it needs is missing.
    """
    module, _, kind = name.partition(":")
    try:
        recognise = getattr(import_module(module), kind)()
    except (ImportError, ValueError, AttributeError, TypeError) as error:
        raise WorkloadError(f"recogniser {name}: expected MODULE:CLASS ({error})") from error
    return lambda samples, rate: str(recognise(resample(samples, rate, RATE)))
