"""Markdown, tags, formulae and ornaments of a written text become what a reader would say aloud."""

from cosyvoice_runtime.text.markup.reader import MARKUPS, MarkupReader, TextMarkup, without_markup

__all__ = ["MARKUPS", "MarkupReader", "TextMarkup", "without_markup"]
