"""What image libraries have to say about odd files reaches neither stderr nor the logs."""

from __future__ import annotations

import subprocess
import sys

import pytest

NOISY = """
import logging, struct, sys
from io import BytesIO

import numpy as np
import tifffile

{setup}
from app.intake.decode import decode
from app.intake.sniff import check
from app.problems import ProblemError
from tests.intake.mutations import mutated
from tests.intake.pictures import encode, plain, with_orientation


def short(compression):
    out = BytesIO()
    samples = np.random.default_rng(1).integers(0, 255, (64, 48, 3), dtype=np.uint8)
    tifffile.imwrite(out, samples, photometric="rgb", compression=compression, metadata=None)
    data = bytearray(out.getvalue())
    tags = tifffile.TiffFile(BytesIO(out.getvalue())).pages[0].tags
    for name in ("ImageLength", "RowsPerStrip"):
        data[tags[name].valueoffset : tags[name].valueoffset + 2] = struct.pack("<H", 200)
    return bytes(data)


files = [short(name) for name in ("zlib", "lzw", "packbits", "jpeg")]
files += [data for _, data in mutated(77, 1500)]
exif = with_orientation(6)
files += [exif[:at] + b"\\xff" + exif[at + 1 :] for at in range(20, 70)]
files += [encode(plain().convert("P"), "PNG", transparency=bytes(3))]
for data in files:
    for look in (check, decode):
        try:
            look(data)
        except ProblemError:
            pass
print(len(files))
"""


@pytest.mark.parametrize("setup", ["", "from app import logs\nlogs.configure('debug', 'worker')"])
def test_odd_files_write_nothing(setup: str) -> None:
    """In a process of its own, as libraries in C write past Python; with the logs at their loudest, too."""
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", NOISY.format(setup=setup)], capture_output=True, text=True
    )
    assert done.stderr == ""
    assert int(done.stdout) > 1500


def test_other_warnings_are_one_json_line_each() -> None:
    code = (
        "import json, warnings\nfrom app import logs\nlogs.configure('info', 'worker')\n"
        "for _ in range(9): warnings.warn('odd\\nthing')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert line.startswith("{")
    assert "odd\\\\nthing" in line or "odd\\nthing" in line
