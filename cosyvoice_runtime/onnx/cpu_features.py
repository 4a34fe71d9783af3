"""The CPU's units for products, as far as the networks on ONNX Runtime depend on them."""

from __future__ import annotations

import logging
import re
from collections.abc import Set
from functools import cache
from pathlib import Path

logger = logging.getLogger(__name__)

CPU_INFO = Path("/proc/cpuinfo")
AMX, EXACT_PRODUCTS, WIDE = "amx_int8", frozenset({"avx512_vnni", "avx_vnni"}), "avx512f"
"""Flags: tiles of 8 bits; products of 8 bits that are added in 32; registers of 512 bits."""


@cache
def cpu_flags() -> Set[str]:
    """Flags of the CPU that this process sees; empty where the system does not tell them."""
    return seen_flags(CPU_INFO.read_text() if CPU_INFO.exists() else "", sees_wide_registers())


def seen_flags(cpu_info: str, sees_wide: bool) -> Set[str]:
    """Flags of the CPU that the process sees.

    Args:
        cpu_info: ``/proc/cpuinfo``, which has one line of flags for each core.
        sees_wide: the process sees registers of 512 bits. Where the system has them and it does not, the
            process is given another CPU than the system, and what is newer than they are is not there.
    """
    lines = re.findall(r"^flags\s*:(.*)$", cpu_info, re.MULTILINE)
    flags = frozenset(lines[0].split() if lines else ())
    if WIDE in flags and not sees_wide:
        return frozenset(flag for flag in flags if not re.match("avx512|avx_|amx", flag))
    return flags


def sees_wide_registers() -> bool:
    """Whether the CPU itself, and not the system, says that it has them; true where numpy does not tell."""
    try:
        from numpy.core._multiarray_umath import __cpu_features__  # type: ignore[import-not-found]
    except ImportError:
        return True
    return bool(__cpu_features__.get("AVX512F", False))


def adds_in_32_bits(flags: Set[str]) -> bool:
    """Whether the CPU adds products of 8 bits in 32 at once; else two are added in 16, and saturate.

    The runtime then multiplies exactly when it is told to, several times slower. It must not be told where
    there is no need: it would give up AMX.
    """
    return not flags or bool(EXACT_PRODUCTS & flags)


def tell_cpu(network: str, weight_format: str) -> None:
    """Log what a network is multiplied with, and a warning where 8 bits have no fast way."""
    flags = cpu_flags()
    logger.info("%s: the CPU has %s", network, kind_of(flags))
    if weight_format.startswith("int8") and not adds_in_32_bits(flags):
        logger.warning(
            "%s: weights in 8 bits on a CPU without VNNI: products that do not saturate are taken, which are "
            "slower; float32 may be as fast",
            network,
        )


def kind_of(flags: Set[str]) -> str:
    """The widest units that the runtime has kernels for, in words."""
    if not flags:
        return "units that the system does not tell"
    for flag, words in (
        (AMX, "AMX"),
        ("avx512_vnni", "AVX512 with VNNI, no AMX"),
        ("avx_vnni", "AVX2 with VNNI, no AVX512"),
        (WIDE, "AVX512 without VNNI"),
        ("avx2", "AVX2 alone: no VNNI, AVX512, AMX"),
        ("avx", "AVX alone: no AVX2"),
    ):
        if flag in flags:
            return words
    return "no AVX"
