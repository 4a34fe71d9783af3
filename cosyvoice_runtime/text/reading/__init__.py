"""Written forms of numbers, dates, amounts, addresses and the like in spoken words."""

from cosyvoice_runtime.text.reading.reader import FormReader

__all__ = ["FormReader"]
