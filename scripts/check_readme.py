#!/usr/bin/env python3
"""Compiles the C++ code blocks of README.md and CONTRIBUTING.md.

A block with `int main` is a program of its own, is linked and run; the others become the bodies of functions, in order, or, when they
start with `#include` or `namespace` or define a function, type or template, stand at namespace scope. An HTML comment `<!-- fragment -->` on the
line before a block leaves it out (a piece of a file shown for reading).

usage: check_readme.py [BUILD_DIR]    (default build/release; its libtensorlite is linked)
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^(<!-- fragment -->\n)?```cpp\n(.*?)^```", re.M | re.S)
AT_NAMESPACE = re.compile(r"^\s*(#include|namespace \w+ \{|struct |class |template|[\w:&<> ]+ \w+\([^;{]*\) \{)")
PRELUDE = "#include <tensorlite/tensorlite.hpp>\n#include <iostream>\nnamespace tl = tensorlite;\n"


def program(code: str) -> str:
    if "int main" in code:
        return code
    if AT_NAMESPACE.match(code):
        return f"{PRELUDE}{code}\nint main() {{}}\n"
    return f"{PRELUDE}void block() {{\n{code}}}\nint main() {{}}\n"


def compile_and_run(code: str, build: pathlib.Path, folder: pathlib.Path) -> bool:
    source = folder / "block.cpp"
    source.write_text(program(code))
    command = [os.environ.get("CXX", "g++"), "-std=c++20", "-Wall", "-Wextra", "-Wno-unused", f"-I{ROOT / 'include'}", str(source), "-o",
               str(folder / "block"), f"-L{build / 'lib'}", f"-Wl,-rpath,{build / 'lib'}", "-ltensorlite"]  # fmt: skip
    return subprocess.run(command).returncode == 0 and subprocess.run([str(folder / "block")], cwd=folder, stdout=subprocess.DEVNULL).returncode == 0


def main() -> int:
    build = (ROOT / (sys.argv[1] if len(sys.argv) > 1 else "build/release")).resolve()
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for document in ("README.md", "CONTRIBUTING.md"):
            text = (ROOT / document).read_text(encoding="utf-8")
            for match in BLOCK.finditer(text):
                if match[1]:
                    continue
                if compile_and_run(match[2], build, pathlib.Path(folder)):
                    passed += 1
                else:
                    failed += 1
                    print(f"{document}:{text.count(chr(10), 0, match.start()) + 1}: this block does not compile and run")
    print(f"readme: {passed} blocks compile and run, {failed} do not")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
