"""Mutations of an input: bits, spans, lines and numbers, unlimited repetition."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

MUTATIONS_MAX: Final = 8
REPEATED_BYTES_MAX: Final = 60_000

NUMBERS: Final = (
    *(b"0", b"00", b"-1", b"+1", b"1e9", b"0x10", b"255", b"256", b"65535", b"65536", b"2147483647", b"2147483648"),
    *(b"4294967295", b"4294967296", b"18446744073709551616", b"9" * 400, b"0" * 400 + b"1"),
    *("\u0663".encode(), "\u00b2".encode()),
)
TOKENS: Final = (
    *(b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\r\n ", b"\r\n\t", b" ", b"\t", b"\0", b"\x0b", b"\x7f", b"\xff", b"\x85"),
    *(b",", b";", b";;", b"=", b":", b"<", b">", b"<>", b'"', b'""', b"\\", b'\\"', b"*", b"?", b"&", b"@", b"%"),
    *(b"%00", b"%zz", b"%c3%28", b"[", b"]", b"[::1]", b"(", b")", b"/", b"SIP/2.0", b"\xc3\xa9", b"\xed\xa0\x80"),
    *("\u2028".encode(), "\u00a0".encode(), "\ufeff".encode(), "\u0130".encode(), "\u212a".encode(), b"\xf4\x90\x80"),
)
NESTING: Final = (
    b"<",
    b"(",
    b'"',
    b"[",
    b"\\",
    b'\\"',
    b"<a:",
    b";a=",
    b"%25",
    b"\r\n ",
    b",",
    b"a,",
    b'"",',
    b"::",
    b"&a=",
)


def mutated(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return ``data`` with a few mutations; ``others`` are what it may be spliced with."""
    for _ in range(random.choice((1, 1, 1, 2, 3, MUTATIONS_MAX))):
        data = random.choice(_MUTATIONS)(random, data, others)
    return data


def _span(random: Random, data: bytes) -> tuple[int, int]:
    start = random.randint(0, len(data))
    return start, min(len(data), start + int(random.expovariate(1 / 12)) + 1)


def _flip(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    for _ in range(random.randint(1, 4) if data else 0):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _insert(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    at = random.randint(0, len(data))
    return data[:at] + random.choice(TOKENS) + data[at:]


def _noise(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, end = _span(random, data)
    return data[:start] + random.randbytes(random.randint(1, 6)) + data[end:]


def _delete(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, end = _span(random, data)
    return data[:start] + data[end:]


def _truncate(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return data[: random.randint(0, len(data))]


def _repeat(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, end = _span(random, data)
    return data[:end] + data[start:end] * random.choice((1, 2, 30)) + data[end:]


def _nest(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Repeat one opening or separating token; sometimes up to the largest input."""
    token = random.choice(NESTING)
    bytes_max = REPEATED_BYTES_MAX if random.random() < 0.02 else 300
    at = random.randint(0, len(data))
    return data[:at] + token * random.randint(1, bytes_max // len(token)) + data[at:]


def _splice(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = random.choice(others)
    return data[: random.randint(0, len(data))] + other[random.randint(0, len(other)) :]


def _renumber(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    numbers = list(re.finditer(rb"[0-9]+", data))
    if not numbers:
        return data
    found = random.choice(numbers)
    return data[: found.start()] + random.choice(NUMBERS) + data[found.end() :]


def _lines(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Repeat a line, take one away, move one, or take one from elsewhere."""
    lines = data.split(b"\r\n")
    index = random.randrange(len(lines))
    match random.randrange(4):
        case 0:
            lines.insert(random.randint(0, len(lines)), lines[index])
        case 1:
            del lines[index]
        case 2:
            lines.insert(random.randrange(len(lines)), lines.pop(index))
        case _:
            lines.insert(index, random.choice(random.choice(others).split(b"\r\n")))
    return b"\r\n".join(lines)


def _respelled(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Change case or line ends throughout."""
    change = random.choice((bytes.upper, bytes.lower, bytes.swapcase, lambda given: given.replace(b"\r\n", b"\n")))
    changed: bytes = change(data)
    return changed


_MUTATIONS: Final[tuple[Callable[[Random, bytes, Sequence[bytes]], bytes], ...]] = (
    *(_flip, _insert, _insert, _noise, _delete, _truncate, _repeat, _nest),
    *(_splice, _renumber, _renumber, _lines, _lines, _respelled),
)
