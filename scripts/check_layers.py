#!/usr/bin/env python3
"""Checks that includes go one way (L0 <- L1 <- L2 <- L3 <- L4), that backends see L0, L1 and detail only, that public headers include
standard headers only, and that operating-system headers stay in src/platform.cpp. Prints each offence as file:line: why."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PUBLIC = ROOT / "include" / "tensorlite"

LEVELS = {
    "base": 0, "scalar_math": 0, "elementwise": 0,
    "backend": 1, "detail": 1,
    "device": 2, "tensor": 2, "autograd": 2, "autocast": 2,
    "ops": 3,
    "nn": 4, "optim": 4, "data": 4, "io": 4, "metrics": 4, "report": 4, "capture": 4,
    "tensorlite": 5, "eigen": 5, "dlpack": 5,
}  # fmt: skip
OPT_IN = {"eigen": r"Eigen/"}  # what an opt-in header may include besides standard headers
FORBIDDEN_PUBLIC = {"iostream", "regex"}
SYSTEM = re.compile(r"^(unistd|dlfcn|pthread|sched|fcntl|signal|windows|link|spawn|poll|termios|execinfo)\.h$|^sys/|^linux/|^arpa/")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SOURCES = {".hpp", ".cpp", ".cu", ".cuh"}


def level(path: str) -> int | None:
    """The layer of a public header named as in `#include <tensorlite/PATH>`."""
    return LEVELS.get(pathlib.PurePath(path).parts[0].removesuffix(".hpp"))


def includes(file: pathlib.Path):
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match[1] == "<", match[2]


def tensorlite_path(file: pathlib.Path, angled: bool, name: str) -> str | None:
    """`name` relative to include/tensorlite when it is a public header of ours."""
    if name.startswith("tensorlite/"):
        return name.removeprefix("tensorlite/")
    if not angled:
        target = (file.parent / name).resolve()
        if target.is_relative_to(PUBLIC):
            return target.relative_to(PUBLIC).as_posix()
    return None


def check_public(file: pathlib.Path):
    name = file.relative_to(PUBLIC).as_posix()
    own = level(name)
    if own is None:
        yield 1, f"{name} has no layer: add it to LEVELS in {pathlib.Path(__file__).name}"
        return
    allowed = OPT_IN.get(name.removesuffix(".hpp"))
    for number, angled, included in includes(file):
        inner = tensorlite_path(file, angled, included)
        if inner is not None:
            if (other := level(inner)) is None or other > own:
                yield number, f"a header of layer {own} includes {inner} (layer {other})"
        elif allowed and re.match(allowed, included):
            continue
        elif not angled or "/" in included or "." in included or included in FORBIDDEN_PUBLIC:
            yield number, f"a public header includes {included}: standard headers only, and neither <iostream> nor <regex>"


def check_source(file: pathlib.Path):
    backend = file.relative_to(ROOT / "src").parts[0] in ("cpu", "cuda")
    for number, angled, included in includes(file):
        if SYSTEM.match(included) and file.name != "platform.cpp":
            yield number, f"{included} is the operating system's: only src/platform.cpp may include it"
        inner = tensorlite_path(file, angled, included)
        if backend and inner is not None and ((other := level(inner)) is None or other > 1):
            yield number, f"a backend includes {inner}: it may see L0, L1 and detail only"


def main() -> int:
    offences = files = 0
    for folder, check in ((PUBLIC, check_public), (ROOT / "src", check_source)):
        for file in sorted(f for f in folder.rglob("*") if f.suffix in SOURCES):
            files += 1
            for number, why in check(file):
                print(f"{file.relative_to(ROOT)}:{number}: {why}")
                offences += 1
    print(f"layers: {files} files, {offences} offences")
    return 1 if offences or not files else 0


if __name__ == "__main__":
    sys.exit(main())
