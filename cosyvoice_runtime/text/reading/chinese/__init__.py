"""A file for each class of the written forms of Chinese, and the order in which they are tried."""

from cosyvoice_runtime.text.reading.chinese import (
    calculus,
    clock,
    code,
    date,
    foreign,
    formula,
    machine,
    mark,
    measure,
    money,
    number,
    ratio,
)
from cosyvoice_runtime.text.reading.classes import electronic

CLASSES = (
    mark.read,
    electronic.read,
    foreign.read,
    machine.read,
    calculus.read,
    code.read,
    date.read,
    clock.read,
    money.read,
    measure.read,
    ratio.read,
    formula.read,
    number.read,
)
"""The first that finds its form at a place reads it."""
