#!/usr/bin/env python3
"""Compile every fused kernel of full-size networks for GPUs that need not be here.

    python scripts/compile_kernels.py                      for a card of each kind
    python scripts/compile_kernels.py --card L4 "RTX 4090"
    python scripts/compile_kernels.py --card L4 --adapter-rank 16       with adapters by voice, of all layers
    python scripts/compile_kernels.py --adapter-rank 16 --adapter-modules attention.qkv     of some alone
    python scripts/compile_kernels.py --card L4 --write-row row.json    # for token2wav.kernels_file

What is compiled is what a server captures on the card, with the tiles of its row in
cosyvoice_runtime/gpu/kernels/rows.py. It goes into the Triton language's cache ($TRITON_CACHE_DIR), where a
server finds it. A line tells how many forms of each kernel there are, the most shared memory and registers
of one, and spilled bytes. The exit status is 1 where a form can't be compiled, or needs more shared memory
than the card has. Nothing is run, and no GPU is needed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.lm_rows import PROJECTIONS
from cosyvoice_runtime.checkpoint.voice_adapters import RANKS, AdapterForm
from cosyvoice_runtime.compilation.captures import find_forms
from cosyvoice_runtime.compilation.compiler import ForkedCompiler
from cosyvoice_runtime.compilation.deployment import Deployment
from cosyvoice_runtime.compilation.forms import Compiled, Form, compile_for
from cosyvoice_runtime.gpu.kernels.ahead import note_compiled
from cosyvoice_runtime.gpu.kernels.rows import KIB, ROWS, row_of, write_row
from cosyvoice_runtime.gpu.nvidia import GpuLimits, Version
from cosyvoice_runtime.settings import TensorrtLlmSettings, Token2WavSettings
from cosyvoice_runtime.settings.gpu_memory import GIB
from cosyvoice_runtime.settings.machine import usable_cores
from making import architecture, architecture_cosyvoice3


class Card(NamedTuple):
    """A GPU as its maker sells it."""

    capability: Version
    multiprocessors: int
    gib: int

    @property
    def limits(self) -> GpuLimits:
        """Its limits, with the shared memory of its kind."""
        kind = max((row for row in ROWS if row.capability <= self.capability), key=attrgetter("capability"))
        return GpuLimits(self.capability, kind.shared_kib * KIB, self.multiprocessors, self.gib * GIB)


CARDS = {
    "A100": Card((8, 0), 108, 80),
    "A30": Card((8, 0), 56, 24),
    "RTX 3090": Card((8, 6), 82, 24),
    "A10": Card((8, 6), 72, 24),
    "L4": Card((8, 9), 58, 24),
    "RTX 4090": Card((8, 9), 128, 24),
    "L40S": Card((8, 9), 142, 48),
    "H100": Card((9, 0), 132, 80),
    "H200": Card((9, 0), 132, 141),
    "B200": Card((10, 0), 148, 180),
    "RTX 5090": Card((12, 0), 170, 32),
    "DGX Spark": Card((12, 1), 48, 119),
}
FAMILIES = {"CosyVoice2": architecture.FULL, "CosyVoice3": architecture_cosyvoice3.FULL}


def deployment(config: ModelConfig, card: Card, adapters: AdapterForm = AdapterForm()) -> Deployment:  # noqa: B008 (frozen)
    """Settings of a server that captures all it can on a card, whatever slots its memory has room for."""
    nowhere = Path("nowhere")
    slots = 64
    lm = TensorrtLlmSettings(
        checkpoint_dir=nowhere,
        engine="torch",
        device="cuda",
        dtype="bfloat16",
        max_slots=slots,
        max_sequence_tokens=4096,
        kv_cache_tokens=4096 * slots,
    )
    wave = Token2WavSettings(
        checkpoint_dir=nowhere, backend="torch", device="cuda", dtype="float16", page_format="float16"
    )
    return Deployment(config, lm, wave, card.limits, adapters)


def lines(forms: Sequence[Compiled]) -> Iterator[str]:
    """A line for each kernel."""
    for kernel in sorted({form.kernel for form in forms}):
        some = [form for form in forms if form.kernel == kernel]
        yield (
            f"  {kernel}: {len(some)} forms, shared {max(form.shared for form in some)}, "
            f"registers {max(form.registers for form in some)}, spilled {max(form.spilled for form in some)}"
        )


def _take_new(
    compiler: ForkedCompiler,
    forms: list[Form],
    known: set[tuple[Version, str]],
    capability: Version,
    form: Form,
) -> None:
    """Note a form, and compile it unless that was done for a card of the same compute capability."""
    forms.append(form)
    if (capability, form.key) not in known:
        known.add((capability, form.key))
        compiler.take(form)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--card", nargs="+", choices=list(CARDS), default=list(CARDS), help="(all)")
    parser.add_argument("--family", nargs="+", choices=list(FAMILIES), default=list(FAMILIES), help="(all)")
    parser.add_argument("--adapter-rank", type=int, choices=RANKS, help="of adapters by voice (none)")
    parser.add_argument(
        "--adapter-modules", nargs="+", choices=list(PROJECTIONS), default=list(PROJECTIONS),
        help="linear layers that they change (all)",
    )  # fmt: skip
    parser.add_argument("--processes", type=int, default=usable_cores(), help="that compile (%(default)s)")
    parser.add_argument("--output", type=Path, help="JSON file for all forms")
    parser.add_argument("--write-row", type=Path, help="write the row of one card and compile nothing")
    options = parser.parse_args()
    if options.write_row:
        if len(options.card) != 1:
            parser.error("--write-row takes one --card")
        limits = CARDS[options.card[0]].limits
        write_row(options.write_row, row_of(limits.capability, limits.shared_bytes))
        return 0
    modules = tuple(module for module in PROJECTIONS if module in options.adapter_modules)
    adapters = AdapterForm(options.adapter_rank, modules) if options.adapter_rank else AdapterForm()
    status, found = 0, []
    known: set[tuple[Version, str]] = set()
    for name in options.card:
        card = CARDS[name]
        compile_for(card.capability)
        for family in options.family:
            started = time.monotonic()
            wanted = deployment(FAMILIES[family], card, adapters)
            forms: list[Form] = []
            compiled: list[Compiled] = []
            compiler = ForkedCompiler(options.processes, compiled.append, measured=True)
            take = partial(_take_new, compiler, forms, known, card.capability)
            find_forms(wanted, take)
            compiler.finish()
            row = row_of(card.capability, card.limits.shared_bytes)
            print(
                f"{name}, {family} (row {row.name}): {len(forms)} forms, "
                f"{len(compiled)} of them new, compiled in {time.monotonic() - started:.1f} s",
                *lines(compiled),
                sep="\n",
                flush=True,
            )
            wrong = [form for form in compiled if form.failure or form.shared > card.limits.shared_bytes]
            for form in wrong:
                problem = form.failure or f"{form.shared} bytes of shared memory"
                print(f"  wrong: {form.kernel} {form.sizes}: {problem}", flush=True)
            status |= bool(wrong)
            if not wrong:
                note_compiled(wanted.key)
            found += [{"card": name, "family": family, **form._asdict()} for form in compiled]
    if options.output:
        options.output.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
