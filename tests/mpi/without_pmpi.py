"""Copies a shared library without its names PMPI_…: they are there for the library itself, and hidden from others.

    python3 without_pmpi.py LIBRARY COPY
"""

import struct
import sys

DYNSYM, HIDDEN = 11, 2

source, copy = sys.argv[1:]
image = bytearray(open(source, "rb").read())
(at,) = struct.unpack_from("<Q", image, 40)
size, count = struct.unpack_from("<HH", image, 58)
# Name, kind, flags, address, offset, length, link, …
sections = [struct.unpack_from("<IIQQQQII", image, at + size * n) for n in range(count)]
symbols = next(section for section in sections if section[1] == DYNSYM)
strings = sections[symbols[6]]
hidden = 0
for at in range(symbols[4], symbols[4] + symbols[5], 24):
    (name,) = struct.unpack_from("<I", image, at)
    if image.startswith(b"PMPI_", strings[4] + name):
        image[at + 5] = HIDDEN
        hidden += 1
assert hidden > 300, f"{source}: {hidden} names PMPI_…"
with open(copy, "wb") as file:
    file.write(image)
