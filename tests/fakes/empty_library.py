"""A shared library for x86-64 Linux whose functions return 0, written without a compiler.

Python bindings of a native library can then be imported, and looked at, where the library itself is not
installed. The layout follows the ELF specification (gABI, chapters 4 and 5).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

PAGE = 0x1000
RETURN_ZERO = b"\x31\xc0\xc3"  # xor eax, eax; ret
ELF_HEADER, PROGRAM_HEADER, SYMBOL = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQQQ"), 24
LOAD, DYNAMIC, STACK = 1, 2, 0x6474E551
READ_EXECUTE, READ_WRITE = 5, 6
HASH, STRINGS, SYMBOLS, STRINGS_SIZE, SYMBOL_SIZE = 4, 5, 6, 10, 11
GLOBAL_FUNCTION, FIRST_SECTION = 0x12, 1


def write_library(path: Path, functions: Sequence[str]) -> None:
    """One page to read and execute, and one that the loader writes its table of places into."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in functions)
    headers = ELF_HEADER.size + 4 * PROGRAM_HEADER.size
    symbols = headers + len(RETURN_ZERO) + -(headers + len(RETURN_ZERO)) % 8
    strings = symbols + SYMBOL * (1 + len(functions))
    table = strings + len(names) + -(strings + len(names)) % 8
    image = bytearray(PAGE)
    place(image, headers, RETURN_ZERO)
    place(image, symbols, bytes(SYMBOL) + b"".join(_symbol(names, name, headers) for name in functions))
    place(image, strings, names)
    place(image, table, _hash_table(len(functions)))
    entries = (
        (HASH, table), (STRINGS, strings), (SYMBOLS, symbols), (STRINGS_SIZE, len(names)),
        (SYMBOL_SIZE, SYMBOL), (0, 0),
    )  # fmt: skip
    dynamic = b"".join(struct.pack("<qQ", *entry) for entry in entries)
    place(image, 0, _headers(len(dynamic)))
    path.write_bytes(bytes(image) + dynamic)


def place(image: bytearray, offset: int, content: bytes) -> None:
    """Put content into the first page."""
    assert offset + len(content) <= len(image)
    image[offset : offset + len(content)] = content


def _headers(dynamic: int) -> bytes:
    identity = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")  # 64 bits, little endian
    shared_object, x86_64 = 3, 62
    header = ELF_HEADER.pack(
        identity, shared_object, x86_64, 1, 0, ELF_HEADER.size, 0, 0, ELF_HEADER.size, PROGRAM_HEADER.size, 4,
        0, 0, 0,
    )  # fmt: skip
    return header + b"".join(
        (
            PROGRAM_HEADER.pack(LOAD, READ_EXECUTE, 0, 0, 0, PAGE, PAGE, PAGE),
            PROGRAM_HEADER.pack(LOAD, READ_WRITE, PAGE, PAGE, PAGE, dynamic, dynamic, PAGE),
            PROGRAM_HEADER.pack(DYNAMIC, READ_WRITE, PAGE, PAGE, PAGE, dynamic, dynamic, 8),
            PROGRAM_HEADER.pack(STACK, READ_WRITE, 0, 0, 0, 0, 0, 16),
        )
    )


def _symbol(names: bytes, name: str, address: int) -> bytes:
    offset = names.index(b"\0" + name.encode() + b"\0") + 1
    return struct.pack("<IBBHQQ", offset, GLOBAL_FUNCTION, 0, FIRST_SECTION, address, len(RETURN_ZERO))


def _hash_table(count: int) -> bytes:
    """A single bucket, whose chain has every symbol."""
    chain = [0, *range(2, count + 1), 0] if count else [0]
    return struct.pack(f"<{3 + len(chain)}I", 1, 1 + count, 1 if count else 0, *chain)
