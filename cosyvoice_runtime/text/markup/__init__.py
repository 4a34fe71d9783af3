"""Markdown, tags, formulae and ornaments of a written text become what a reader would say aloud."""

from cosyvoice_runtime.text.markup.options import CODE_BLOCKS, EMOJI, MARKUPS, MarkupOptions
from cosyvoice_runtime.text.markup.reader import MarkupReader, without_markup

__all__ = ["CODE_BLOCKS", "EMOJI", "MARKUPS", "MarkupOptions", "MarkupReader", "without_markup"]
