#!/usr/bin/env python3
"""Writes data/mnist: the first 10,000 training and 2,000 test digits of MNIST, as gzip-compressed IDX files.

usage: make_sample.py DIR    (DIR holds the four original *-ubyte.gz files)
"""
import gzip
import pathlib
import struct
import sys

SAMPLE = {"train": 10_000, "t10k": 2_000}


def first_items(data: bytes, count: int) -> bytes:
    """The IDX file `data` cut to its first `count` items."""
    rank = data[3]
    sizes = struct.unpack_from(f">{rank}I", data, 4)
    item = 1
    for size in sizes[1:]:
        item *= size
    header = 4 + 4 * rank
    return data[:4] + struct.pack(f">{rank}I", count, *sizes[1:]) + data[header : header + count * item]


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    source = pathlib.Path(sys.argv[1])
    target = pathlib.Path(__file__).resolve().parent.parent / "data" / "mnist"
    target.mkdir(parents=True, exist_ok=True)
    for part, count in SAMPLE.items():
        for kind in ("images-idx3", "labels-idx1"):
            name = f"{part}-{kind}-ubyte.gz"
            with gzip.open(source / name) as file:
                sample = first_items(file.read(), count)
            with open(target / name, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as out:
                out.write(sample)
            print(f"{target / name}: {count} items")
    return 0


if __name__ == "__main__":
    sys.exit(main())
