"""Checks of NVIDIA's containers: versions, the driver, and whether libraries have the symbols in use."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from cosyvoice_runtime.gpu.nvidia import OLDEST_DRIVERS, cuda_of_driver

Version = tuple[int, int]
QUERY = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
TIMEOUT_S = 60.0
SHOWN_CHARACTERS = 200
SYMBOL = re.compile(r"([\w.]+)(?:\((.*)\))?(.*)")
QUOTED_OR_BRACKETED = re.compile(r"'[^']*'|\"[^\"]*\"|\([^()]*\)|\[[^][]*\]|\{[^{}]*\}|<[^<>]*>")


class Verdict(Enum):
    """The result of one check."""

    PASS = "pass"
    WARN = "warning"
    FAIL = "FAIL"
    UNKNOWN = "unchecked"


class Outcome(NamedTuple):
    """One line of the table.

    Attributes:
        check: name of the check.
        text: the finding or, unless it passed, what is wrong and what to do.
    """

    check: str
    verdict: Verdict
    text: str = ""


def judged(check: str, problems: Sequence[str], text: str = "") -> Outcome:
    """A failure with these problems, or a pass with this text."""
    return Outcome(check, Verdict.FAIL if problems else Verdict.PASS, "; ".join(problems) or text)


@dataclass(frozen=True)
class Container:
    """A pinned image of NVIDIA's.

    Attributes:
        image: its name and tag.
        python: version of its interpreter.
        cuda: version of its CUDA.
        driver: the image's own, with all of this CUDA. Older ones of the same CUDA 13 or 12 run it too, by
            NVIDIA's minor version compatibility.
        libraries: versions of its modules, by name; a build's own label after ``+`` doesn't count.
    """

    image: str
    python: Version
    cuda: Version
    driver: Version
    libraries: Mapping[str, str]

    def check_versions(self) -> Iterator[Outcome]:
        """Check that Python and each library have the pinned versions."""
        yield self.compared("python", dotted(sys.version_info[:2]), dotted(self.python))
        for name, wanted in self.libraries.items():
            module, failure = attempt(name)
            if failure:
                yield Outcome(name, Verdict.FAIL, f"{failure}; run this in {self.image}")
            else:
                yield self.compared(name, module.__version__.partition("+")[0], wanted)

    def compared(self, name: str, found: str, wanted: str) -> Outcome:
        return judged(name, [f"{found}, but written for {wanted} ({self.image})"][: found != wanted], found)

    def check_driver(self) -> Iterator[Outcome]:
        """Check that the driver is the container's own, a newer one, or one that may stand in for it.

        NVIDIA's "CUDA Compatibility" says which. A driver of the same major version of CUDA runs the
        container but can't compile the newer CUDA's PTX (minor version compatibility). The package for
        data-centre GPUs, a ``libcuda`` in the container, answers with its own CUDA where it is used (forward
        compatibility).
        """
        answer = ask(QUERY, TIMEOUT_S)
        if answer.failure:
            text = f"nvidia-smi {answer.failure}; the container needs --gpus all"
            yield Outcome("gpu", Verdict.FAIL, text)
            return
        gpus = [[field.strip() for field in line.split(",")] for line in answer.output.strip().splitlines()]
        yield Outcome("gpu", Verdict.PASS, "; ".join(f"{name}, {memory}" for name, _, memory in gpus))
        yield Outcome("driver", *self._judge(gpus[0][1], cuda_of_driver()))

    def _judge(self, driver: str, cuda: Version | None) -> tuple[Verdict, str]:
        needed = dotted(self.driver)
        if tuple(map(int, driver.split(".")[:2])) >= self.driver:
            return Verdict.PASS, driver
        if cuda is None:
            return Verdict.UNKNOWN, f"{driver} is older than {needed}, and there is no libcuda to ask"
        if cuda >= self.cuda:
            return Verdict.PASS, f"{driver}, with a compatibility package for CUDA {dotted(cuda)}"
        facts = f"{driver} supports CUDA {dotted(cuda)}, {self.image} has {dotted(self.cuda)}"
        oldest = OLDEST_DRIVERS[self.cuda[0]]
        if cuda[0] == self.cuda[0]:
            known = f"runs by minor version compatibility from {oldest} on, but for PTX compiled at run time"
            return Verdict.WARN, f"{facts}: {known}; {needed} has all of it"
        remedy = f"update it to {oldest} or newer, at best to {needed}"
        return Verdict.FAIL, f"{facts}: {remedy}, or on a data-centre GPU use NVIDIA's compatibility package"


def dotted(version: Version) -> str:
    return ".".join(map(str, version))


def attempt(name: str) -> tuple[Any, str]:
    """A module, or why it can't be imported: native libraries fail to load in ways of their own."""
    try:
        return importlib.import_module(name), ""
    except Exception as error:
        return None, f"{name} can't be imported ({type(error).__name__}: {error})"


class Answer(NamedTuple):
    """The answer of a program.

    Attributes:
        output: empty unless the program ended with status 0.
        failure: what the program did instead, as the end of a sentence; empty where it answered.
    """

    output: str
    failure: str


def ask(command: Sequence[str], timeout_s: float) -> Answer:
    """Run a program that may be missing, fail, or never end, as when a driver hangs."""
    try:
        program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except FileNotFoundError:
        return Answer("", "is not installed")
    try:
        output, errors = program.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        program.kill()  # It is not waited for: while it waits for a driver in the kernel, it can't be killed.
        return Answer("", f"has not answered within {timeout_s:g} s")
    if program.returncode:
        told = (errors or output).strip()[-SHOWN_CHARACTERS:]
        return Answer("", f"ends with status {program.returncode}: {told}")
    return Answer(output, "")


class Symbol(NamedTuple):
    """A class or function of a library.

    Attributes:
        parameters: names that are passed to it, with spaces between them.
        attributes: names that are read from it, or from an instance.
    """

    module: str
    name: str
    parameters: str = ""
    attributes: str = ""


def symbols(module: str, table: str) -> tuple[Symbol, ...]:
    """The symbols of a table with a line ``name(parameters) attributes`` for each."""
    lines = [SYMBOL.fullmatch(line.strip()) for line in table.strip().splitlines()]
    return tuple(Symbol(module, line[1], line[2] or "", line[3].strip()) for line in lines if line)


def check_symbols(used: Iterable[Symbol]) -> Iterator[Outcome]:
    """Check that every symbol is there, with the parameters that are passed to it."""
    modules = {symbol.module: attempt(symbol.module) for symbol in used}
    yield from (Outcome(name, Verdict.UNKNOWN, failure) for name, (_, failure) in modules.items() if failure)
    yield from (_look(symbol, modules[symbol.module][0]) for symbol in used if modules[symbol.module][0])


def _look(symbol: Symbol, found: Any) -> Outcome:
    check = f"{symbol.module}.{symbol.name}"
    for name in symbol.name.split("."):
        if not hasattr(found, name):
            return Outcome(check, Verdict.FAIL, "does not exist")
        found = getattr(found, name)
    problems = [f"has no {name}" for name in symbol.attributes.split() if not hasattr(found, name)]
    if symbol.parameters:
        known = overloads(found.__init__ if isinstance(found, type) else found)  # type: ignore[misc]
        if not known and not problems:
            return Outcome(check, Verdict.UNKNOWN, "its parameters can't be read")
        lacking = [[name for name in symbol.parameters.split() if name not in one] for one in known]
        problems += [f"takes no {name}" for name in min(lacking, key=len)]
    return judged(check, problems)


def overloads(function: Callable[..., Any]) -> list[set[str]]:
    """Parameter names of each overload of Python's, nanobind's or pybind11's; empty if they can't be known.

    nanobind and pybind11 write a line ``name(parameter: type = default, ...) -> type`` for each into
    ``__doc__``; where there are several, pybind11 numbers them, under a heading that names none.
    """
    try:
        return [set(inspect.signature(function).parameters)]
    except (TypeError, ValueError):
        begins = rf"(?:\d+\. )?{re.escape(function.__name__)}\((?!\*args)(.*)"
        found = (re.match(begins, line) for line in (function.__doc__ or "").splitlines())
        return [_names(line[1]) for line in found if line]


def _names(parameters: str) -> set[str]:
    """Names before the bracket that closes the list; types and defaults may have brackets and commas, too."""
    while (shorter := QUOTED_OR_BRACKETED.sub("", parameters)) != parameters:
        parameters = shorter
    found = (re.match(r"\s*(\w+)", parameter) for parameter in parameters.partition(")")[0].split(","))
    return {name[1] for name in found if name}  # The star that makes the rest keyword-only is no name.
