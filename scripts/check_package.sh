#!/usr/bin/env bash
# A program outside the tree builds and runs against the installed package (shared and static, after the prefix was moved) and against
# the source tree as a subdirectory; no CUDA library is linked into the library or the trainer.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; echo "package: failed: $*"; exit 1; }; }

# consumer NAME CMAKE_ARGUMENT...: builds tests/package as someone else's project and runs it.
consumer() {
  local name=$1
  shift
  quietly cmake -G Ninja -S "$work/source" -B "$work/$name" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 "$@"
  quietly cmake --build "$work/$name"
  quietly "$work/$name/consumer"
  echo "package: $name consumer builds and runs"
}

# installed NAME BUILD: installs BUILD, moves the prefix away and builds the consumer against it.
installed() {
  quietly cmake --install "$2" --prefix "$work/$1-prefix"
  mv "$work/$1-prefix" "$work/$1-moved"
  consumer "$1" -DCMAKE_PREFIX_PATH="$work/$1-moved"
  if grep -rlF -e "$work/$1-prefix" -e "$root" "$work/$1-moved" --include='*.cmake'; then
    echo "package: the files above name a path of the build"
    exit 1
  fi
}

cp -r tests/package "$work/source"

[ -e build/release/lib/libtensorlite.so ] || scripts/test.sh
installed shared build/release

# The static library is built once, as a subdirectory of the consumer, and installed from there.
consumer subdirectory -DTENSORLITE_SUBDIRECTORY="$root" -DBUILD_SHARED_LIBS=OFF -DTENSORLITE_INSTALL=ON -DTENSORLITE_CUDA=OFF \
  -DTENSORLITE_CPU_ISAS=v2 -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)"
installed static "$work/subdirectory"

for binary in build/release/lib/libtensorlite.so build/release/bin/mnist_cnn "$work/shared-moved/bin/tensorlite-doctor"; do
  if readelf -d "$binary" | grep -E 'NEEDED.*(cuda|cublas|cudnn|nvrtc|nvidia)'; then
    echo "package: $binary is linked to a CUDA library"
    exit 1
  fi
done
echo "package: no CUDA library is linked to libtensorlite, mnist_cnn or the doctor"
