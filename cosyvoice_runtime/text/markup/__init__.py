"""Markdown, SSML, tags, formulae and ornaments of a text become what a reader would say aloud."""

from cosyvoice_runtime.text.markup.options import CODE_BLOCKS, EMOJI, MARKUPS, MarkupOptions, TextMarkup
from cosyvoice_runtime.text.markup.text_reader import TextReader

__all__ = ["CODE_BLOCKS", "EMOJI", "MARKUPS", "MarkupOptions", "TextMarkup", "TextReader"]
