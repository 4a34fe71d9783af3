"""Street addresses: ``1428 Elm St``, ``Santa Clara, CA 95051``."""

from __future__ import annotations

from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm


def read(place: Place) -> ReadForm | None:
    """A part of a street address in the form of the language."""
    return place.language.address(place)
