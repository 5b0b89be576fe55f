"""Damage to bytes: blind, and by what the format means, packed again so that its checksums fit."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from random import Random
from typing import Any

Damage = Callable[[bytes, Random], bytes]
NUMBERS = (0, -1, 1.5, 10**19, 1e308, float("nan"), float("inf"), 2**31, 0.1, -(2**63))
TEXTS = ("", "x", "../x", "\x1b[31m", "é" * 300, "=1+1", "\ud800", "NaN")
ODD: tuple[Any, ...] = (*NUMBERS, *TEXTS, None, True, [], {}, [[]], {"": None}, [1, "a"])


def mutate(name: str, raw: bytes, chance: Random) -> tuple[str, bytes]:
    """Damage a file; half of the time by its format."""
    aware = [damage for ending, damage in BY_ENDING if name.endswith(ending)]
    for _ in range(20):
        damage = chance.choice(aware) if aware and chance.random() < 0.5 else chance.choice(BLIND)
        try:
            made = damage(raw, chance)
        except (ValueError, KeyError, IndexError, EOFError, OSError, zipfile.BadZipFile):
            continue
        if made != raw:
            return damage.__name__.strip("_"), made
    return "emptied", b""


def _flip(raw: bytes, chance: Random) -> bytes:
    made = bytearray(raw)
    for _ in range(chance.choice((1, 1, 1, 2, 8, 64))):
        made[chance.randrange(len(made))] ^= 1 << chance.randrange(8)
    return bytes(made)


def _edit(raw: bytes, chance: Random) -> bytes:
    made = bytearray(raw)
    at = chance.randrange(len(made))
    made[at : at + chance.choice((1, 2, 4, 8))] = chance.choice(
        (b"\0", b"\xff" * 8, b"9", b"-", b"\n", b"\x80", b'"', b"[", b"e999", b"\0" * 8)
    )
    return bytes(made)


def _cut(raw: bytes, chance: Random) -> bytes:
    return raw[: chance.choice((0, 1, 8, len(raw) - 1, chance.randrange(len(raw))))]


def _insert(raw: bytes, chance: Random) -> bytes:
    at = chance.randrange(len(raw) + 1)
    return raw[:at] + chance.randbytes(chance.choice((1, 3, 100))) + raw[at:]


def _repeat(raw: bytes, chance: Random) -> bytes:
    start, end = sorted(chance.randrange(len(raw) + 1) for _ in "ab")
    return raw[:end] + raw[start:]


def _header(raw: bytes, chance: Random) -> bytes:
    made = bytearray(raw)
    made[chance.randrange(min(len(made), 64))] = chance.randrange(256)
    return bytes(made)


def _garbage(raw: bytes, chance: Random) -> bytes:
    return chance.choice(
        (b"", b"\0" * 100, chance.randbytes(100), b"null", b"[]", b"{}", b"\xff\xfe{}")
    )


BLIND: tuple[Damage, ...] = (_flip, _flip, _edit, _edit, _cut, _insert, _repeat, _header, _garbage)


def edited(plain: Any, chance: Random, odd: tuple[Any, ...] = ODD) -> Any:
    """Return nested data with one place replaced, dropped or doubled; the rest is shared."""
    if isinstance(plain, dict) and plain and chance.random() < 0.9:
        name = chance.choice(sorted(plain, key=str))
        if chance.random() < 0.15:
            return {key: value for key, value in plain.items() if key != name}
        return {**plain, name: edited(plain[name], chance, odd)}
    if isinstance(plain, list) and plain and chance.random() < 0.9:
        at = chance.randrange(len(plain))
        if chance.random() < 0.2:
            return plain[:at] + plain[at + 1 :] + plain[at : at + 1] * chance.choice((0, 2))
        return [*plain[:at], edited(plain[at], chance, odd), *plain[at + 1 :]]
    if isinstance(plain, int | float) and chance.random() < 0.4:
        return chance.choice((plain + 1, -plain, plain * 10, str(plain), plain / 3))
    return chance.choice(odd)


def _json(raw: bytes, chance: Random) -> bytes:
    if chance.random() < 0.05:
        return b"[" * 100_000 + b"]" * 100_000
    return json.dumps(edited(json.loads(raw), chance), indent=1).encode()


def _lines(raw: bytes, chance: Random) -> bytes:
    lines = raw.splitlines()
    at = chance.randrange(len(lines))
    return b"\n".join([*lines[:at], _json(lines[at], chance).replace(b"\n", b""), *lines[at + 1 :]])


def _yaml(raw: bytes, chance: Random) -> bytes:
    import yaml

    if chance.random() < 0.1:
        bomb = [
            f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9 if i else ['x'] * 9)}]" for i in range(25)
        ]
        return "\n".join(bomb).encode() + b"\n" + raw
    text = yaml.safe_dump(edited(yaml.safe_load(raw), chance), allow_unicode=True)
    literal = chance.choice(
        ("2020-01-01", "!!binary aGk=", "!!set {a}", "0x1F", "1_000", "~", "&a [*a]")
    )
    return (text if chance.random() < 0.5 else text.replace(": 1\n", f": {literal}\n")).encode(
        errors="surrogateescape"
    )


def _safetensors(raw: bytes, chance: Random) -> bytes:
    length = int.from_bytes(raw[:8], "little")
    header, body = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    kinds = ("F64", "I8", "BF16", "BOOL", "F8_E4M3", "U64", "nonsense")
    made = json.dumps(edited(header, chance, (*ODD, *kinds))).encode()
    size = chance.choice((len(made), len(made), len(made), 2**63, 0, len(made) + 1))
    return size.to_bytes(8, "little") + made + body


def _zip_members(raw: bytes, chance: Random) -> bytes:
    """Damage a member inside and pack the archive again, or add, rename or drop one."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(made, "w") as new:
        names = old.namelist()
        chosen, way = chance.choice(names), chance.random()
        for name in names:
            content, title = old.read(name), name
            if name == chosen and way < 0.1:
                continue
            if name == chosen and way < 0.8:
                content = mutate(name, content, chance)[1]
            elif name == chosen:
                title = chance.choice(("../up.npy", "/root.npy", "x", "é.npy", "a" * 200))
            how = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA))
            new.writestr(title, content, how)
    return made.getvalue()


def _zip_fields(raw: bytes, chance: Random) -> bytes:
    """Edit a field of a local, central or final header: flags, method, sizes, offsets."""
    made = bytearray(raw)
    mark = chance.choice((b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"))
    starts = [at for at in range(len(made)) if made.startswith(mark, at)]
    at = chance.choice(starts) + chance.randrange(4, 46 if mark[2] == 1 else 22)
    made[min(at, len(made) - 1)] = chance.choice((0, 1, 9, 12, 99, 127, 255))
    return bytes(made)


def _npy(raw: bytes, chance: Random) -> bytes:
    """Edit the text of the header: shape, order, type."""
    end = raw.index(b"\n") + 1
    head = raw[10:end].decode("latin1").rstrip()
    swaps = (
        *(("'shape': (", "'shape': (-"), ("'shape': (", "'shape': (9999999999999,"), ("(", "((")),
        *(("|u1", "|O"), ("|u1", "<f8"), ("<i8", "<M8[s]"), ("False", "True"), ("'descr'", "'x'")),
        *(
            (", ", ",\n"),
            ("{", "{" * 200),
            ("'descr': '", "'descr': 'Z"),
            ("(", "(1.5, "),
            (")", ""),
        ),
    )
    made = head.replace(*chance.choice(swaps), 1).encode("latin1") + b"\n"
    return raw[:8] + len(made).to_bytes(2, "little") + made + raw[end:]


def _tar(raw: bytes, chance: Random) -> bytes:
    """Edit a member or its header and pack the archive again, the header's checksum put right."""
    inner = bytearray(gzip.decompress(raw))
    if chance.random() < 0.4:
        made = io.BytesIO()
        with (
            tarfile.open(fileobj=io.BytesIO(inner)) as old,
            tarfile.open(fileobj=made, mode="w") as new,
        ):
            members = old.getmembers()
            chosen = chance.choice(members)
            for member in members:
                content = old.extractfile(member).read()  # type: ignore[union-attr]
                if member is chosen:
                    content = mutate(member.name, content, chance)[1]
                    member.size = len(content)
                new.addfile(member, io.BytesIO(content))
        return gzip.compress(made.getvalue())
    starts = [at for at in range(0, len(inner), 512) if inner[at + 257 : at + 262] == b"ustar"]
    at = chance.choice(starts)
    where, what = chance.choice(
        (
            *((124, b"77777777777\0"), (124, b"\xff" * 12), (156, b"L"), (156, b"x"), (156, b"S")),
            *(
                (156, b"1"),
                (156, b"5"),
                (156, b"6"),
                (0, b"/abs/"),
                (0, b"../"),
                (124, b"-0000000001"),
            ),
            *((124, b"nonsense!!!!"), (136, b"\x80" + b"\xff" * 11), (0, b"\xff\xfe\xfd")),
        )
    )
    inner[at + where : at + where + len(what)] = what
    inner[at + 148 : at + 156] = b" " * 8
    inner[at + 148 : at + 156] = b"%06o\0 " % sum(inner[at : at + 512])
    return gzip.compress(bytes(inner))


BY_ENDING: tuple[tuple[str, Damage], ...] = (
    *((".json", _json), (".jsonl", _lines), (".journal", _lines), (".yaml", _yaml), (".npy", _npy)),
    *(
        (".safetensors", _safetensors),
        (".npz", _zip_members),
        (".npz", _zip_fields),
        (".tar.gz", _tar),
    ),
    *((".zip", _zip_members), (".zip", _zip_fields)),
)
