"""What is told from a CPU's flags, and the same products on a CPU that has AVX2 and nothing newer."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cosyvoice_runtime.onnx import cpu_features
from cosyvoice_runtime.onnx.cpu_features import adds_in_32_bits, kind_of, seen_flags, tell_cpu

EMULATORS = ("qemu-x86_64", "qemu-x86_64-static")
PRODUCTS = Path(__file__).with_name("test_integer_products.py")


def cpu_info(flags: str | None) -> str:
    """Of two cores; a CPU of another architecture lists no flags."""
    lines = ["processor\t: 0", "model name\t: avx_vnni", *([] if flags is None else [f"flags\t\t: {flags}"])]
    return "\n".join(lines * 2)


@pytest.mark.parametrize(
    ("flags", "expected", "kind"),
    [
        ("fpu sse4_2", False, "no AVX"),
        ("fpu avx", False, "AVX alone: no AVX2"),
        ("fpu avx avx2", False, "AVX2 alone: no VNNI, AVX512, AMX"),
        ("avx2 avx512f avx512bw", False, "AVX512 without VNNI"),
        ("avx2 avx_vnni", True, "AVX2 with VNNI, no AVX512"),
        ("avx2 avx512f avx512_vnni", True, "AVX512 with VNNI, no AMX"),
        ("avx512f avx512_vnni amx_int8", True, "AMX"),
        (None, True, "units that the system does not tell"),
    ],
)
def test_a_cpu_that_saturates_is_known_by_its_flags(flags: str | None, expected: bool, kind: str) -> None:
    found = seen_flags(cpu_info(flags), sees_wide=True)
    assert adds_in_32_bits(found) == expected
    assert kind_of(found) == kind


def test_flags_of_another_cpu_than_the_process_is_given_are_not_believed() -> None:
    given = cpu_info("avx avx2 fma avx512f avx512_vnni avx_vnni amx_int8")
    assert seen_flags(given, sees_wide=False) == {"avx", "avx2", "fma"}


def test_a_cpu_that_never_had_wide_registers_keeps_its_flags() -> None:
    assert seen_flags(cpu_info("avx avx2 avx_vnni"), sees_wide=False) == {"avx", "avx2", "avx_vnni"}


@pytest.mark.parametrize(("weight_format", "warnings"), [("int8", 1), ("float32", 0)])
def test_log_says_what_the_cpu_has_and_where_8_bits_are_slow(
    weight_format: str, warnings: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cpu_features, "cpu_flags", lambda: frozenset({"avx", "avx2"}))
    with caplog.at_level(logging.INFO):
        tell_cpu("token2wav", weight_format)
    assert caplog.messages[0] == "token2wav: the CPU has AVX2 alone: no VNNI, AVX512, AMX"
    assert [record.levelname for record in caplog.records].count("WARNING") == warnings


def test_a_cpu_with_vnni_gets_no_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cpu_features, "cpu_flags", lambda: frozenset({"avx2", "avx_vnni"}))
    with caplog.at_level(logging.WARNING):
        tell_cpu("token2wav", "int8")
    assert not caplog.messages


@pytest.mark.slow
def test_products_are_exact_on_an_emulated_cpu_with_avx2_alone() -> None:
    emulator = next(filter(None, map(shutil.which, EMULATORS)), None)
    if emulator is None:
        pytest.skip("qemu-user is not installed")
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--noconftest"]
    command = [emulator, "-cpu", "Haswell", sys.executable, "-m", "pytest", *options, str(PRODUCTS)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
