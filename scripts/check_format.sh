#!/usr/bin/env bash
# Every C++ and CUDA file is formatted as .clang-format says.
set -euo pipefail
cd "$(dirname "$0")/.."
tool=$(command -v clang-format-14 || command -v clang-format)  # version 14 is the one that decides
git ls-files -z '*.hpp' '*.cpp' '*.cu' '*.cuh' | xargs -0 -n 16 -P "$(nproc)" "$tool" --dry-run -Werror
echo "format: $(git ls-files '*.hpp' '*.cpp' '*.cu' '*.cuh' | wc -l) files"
