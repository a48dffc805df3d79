"""ICC profiles built byte by byte (ICC.1:2001-04), to have some that no library ships."""

from __future__ import annotations

import struct

WHITE_D50 = (0.9642, 1.0, 0.8249)
# sRGB's primaries, adapted to D50
RED_XYZ, GREEN_XYZ, BLUE_XYZ = (0.4361, 0.2225, 0.0139), (0.3851, 0.7169, 0.0971), (0.1431, 0.0606, 0.7141)


def rgb_profile(
    red: tuple[float, ...] = RED_XYZ,
    green: tuple[float, ...] = GREEN_XYZ,
    blue: tuple[float, ...] = BLUE_XYZ,
    gamma: float = 2.2,
    name: str = "test",
) -> bytes:
    """A display whose primaries have these XYZ colours."""
    tags = {b"rXYZ": _xyz(red), b"gXYZ": _xyz(green), b"bXYZ": _xyz(blue)}
    tags |= dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), _gamma(gamma))
    return _profile(b"mntr", b"RGB ", b"XYZ ", tags, name)


def srgb_profile(name: str) -> bytes:
    """sRGB, with its curve as a table."""
    steps = [index / 1023 for index in range(1024)]
    curve = [step / 12.92 if step <= 0.04045 else ((step + 0.055) / 1.055) ** 2.4 for step in steps]
    table = struct.pack(">I1024H", 1024, *(round(value * 65535) for value in curve))
    tags = {b"rXYZ": _xyz(RED_XYZ), b"gXYZ": _xyz(GREEN_XYZ), b"bXYZ": _xyz(BLUE_XYZ)}
    tags |= dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), b"curv\0\0\0\0" + table)
    return _profile(b"mntr", b"RGB ", b"XYZ ", tags, name)


def swapped_profile() -> bytes:
    """A display on which red is blue and blue is red."""
    return rgb_profile(red=BLUE_XYZ, blue=RED_XYZ)


def grey_profile(gamma: float) -> bytes:
    """Grey with this gamma."""
    return _profile(b"mntr", b"GRAY", b"XYZ ", {b"kTRC": _gamma(gamma)}, "grey")


def cmyk_profile() -> bytes:
    """A press whose cyan ink is green and whose other inks do nothing: Lab from the amount of cyan alone."""
    paper, green = (255, 128, 128), (200, 40, 200)
    corners = [green if index & 8 else paper for index in range(16)]  # cyan varies slowest
    identity = bytes(range(256))
    table = b"".join(bytes(corner) for corner in corners)
    matrix = struct.pack(">9i", *(65536 if index % 4 == 0 else 0 for index in range(9)))
    lut = b"mft1\0\0\0\0" + bytes((4, 3, 2, 0)) + matrix + identity * 4 + table + identity * 3
    return _profile(b"prtr", b"CMYK", b"Lab ", {b"A2B0": lut}, "press")


def _profile(kind: bytes, space: bytes, connection: bytes, tags: dict[bytes, bytes], name: str) -> bytes:
    text = name.encode() + b"\0"
    tags = tags | {
        b"desc": b"desc\0\0\0\0" + struct.pack(">I", len(text)) + text + bytes(78),
        b"cprt": b"text\0\0\0\0none\0",
        b"wtpt": _xyz(WHITE_D50),
    }
    at, table, data = 128 + 4 + 12 * len(tags), struct.pack(">I", len(tags)), b""
    for tag, body in tags.items():
        table += tag + struct.pack(">II", at + len(data), len(body))
        data += body + bytes(-len(body) % 4)
    date = struct.pack(">6H", 2024, 1, 1, 0, 0, 0)
    illuminant = b"".join(_fixed(value) for value in WHITE_D50)
    head = struct.pack(">I4sI4s4s4s", at + len(data), b"\0" * 4, 0x02100000, kind, space, connection)
    head += date + b"acsp" + bytes(28) + illuminant
    return head.ljust(128, b"\0") + table + data


def _xyz(values: tuple[float, ...]) -> bytes:
    return b"XYZ \0\0\0\0" + b"".join(_fixed(value) for value in values)


def _fixed(value: float) -> bytes:
    return struct.pack(">i", round(value * 65536))


def _gamma(value: float) -> bytes:
    return b"curv\0\0\0\0" + struct.pack(">IH", 1, round(value * 256)) + bytes(2)
