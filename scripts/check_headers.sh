#!/usr/bin/env bash
# Every public header compiles alone, without a warning.
set -euo pipefail
cd "$(dirname "$0")/.."
check() { echo "#include <${1#include/}>" | "${CXX:-g++}" -std=c++20 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -Iinclude -x c++ -; }
export -f check
count=$(find include -name '*.hpp' ! -name eigen.hpp | wc -l)
find include -name '*.hpp' ! -name eigen.hpp -print0 | xargs -0 -P "$(nproc)" -I{} bash -c 'check {} || { echo "headers: {} does not compile alone"; exit 255; }'
echo "headers: each of $count compiles alone"
