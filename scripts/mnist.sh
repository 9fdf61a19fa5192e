#!/usr/bin/env bash
# Installs what is missing, builds the trainer and trains the digit CNN on the bundled sample. Arguments go to mnist_cnn.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh
build=build/release
targets=(mnist_cnn)
cmake --preset release >/dev/null
if command -v nvidia-smi >/dev/null && ninja -C "$build" -t query tensorlite_cuda >/dev/null 2>&1; then
  targets+=(tensorlite_cuda)
fi
cmake --build "$build" --target "${targets[@]}"
if [ $# -eq 0 ]; then
  set -- --report report
fi
exec "$build/bin/mnist_cnn" "$@"
