"""A file for each class of written forms, and the order in which they are tried."""

from cosyvoice_runtime.text.reading.classes import (
    address,
    clock,
    code,
    date,
    duration,
    electronic,
    formula,
    fraction,
    measure,
    money,
    numbers,
    own,
    ratio,
    telephone,
    word,
)

CLASSES = (
    electronic.read,
    address.read,
    own.read,
    formula.read,
    money.read,
    date.read,
    clock.read,
    telephone.read,
    code.read,
    duration.read,
    measure.read,
    fraction.read,
    ratio.read,
    numbers.read,
    word.read,
)
"""The first that finds its form at a place reads it: those come first whose forms hold others' in them."""
