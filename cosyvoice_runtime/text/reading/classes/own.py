"""Forms that one language alone has, such as the weekday in brackets after a date."""

from __future__ import annotations

from cosyvoice_runtime.text.reading.languages.place import Place, ReadForm


def read(place: Place) -> ReadForm | None:
    """A form of the language's own."""
    return place.language.own(place)
