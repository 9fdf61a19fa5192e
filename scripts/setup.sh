#!/usr/bin/env bash
# Installs what building, testing and checking tensorlite needs (Debian 12, Ubuntu 24.04). Does nothing when all is there.
set -euo pipefail

# package: what it is for
needed=(
  "g++: the compiler"
  "cmake: the build (3.25 or newer)"
  "ninja-build: runs the build"
  "git: source control"
  "python3: checks and data scripts"
  "libeigen3-dev: vector instructions in the CPU kernels"
  "zlib1g-dev: gzip-compressed data sets, npz files"
  "nlohmann-json3-dev: JSON reports and checkpoints"
  "libcli11-dev: command lines of the programs"
  "libfreetype-dev: letters of examples/captcha"
  "fonts-noto-mono: their font"
  "libpng-dev: pictures of examples/captcha"
  "catch2: tests"
  "libbenchmark-dev: benchmarks"
  "clang-format: format check"
)

if ! command -v dpkg-query >/dev/null; then
  echo "setup: this is not Debian or Ubuntu; install these by hand:" >&2
  printf '  %s\n' "${needed[@]}" >&2
  exit 1
fi

missing=()
for entry in "${needed[@]}"; do
  package=${entry%%:*}
  if [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)" != installed ]; then
    missing+=("$package")
    echo "setup: $package is missing (${entry#*: })"
  fi
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "setup: not root and no sudo; as root run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "setup: installing ${missing[*]} with apt-get${as_root:+ (sudo may ask for your password)}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
