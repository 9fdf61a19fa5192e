#!/usr/bin/env bash
# Installs what is missing, builds the trainer and trains the digit CNN on the bundled sample. Arguments go to mnist_cnn.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh

# In a fresh tree the CPU kernels are built for this machine alone; scripts/test.sh adds the other instruction sets.
if [ ! -e build/release/build.ninja ]; then
  configure=(cmake --preset release)
  if [ "$(uname -m)" = x86_64 ]; then
    has() { for flag in "$@"; do grep -qw "$flag" /proc/cpuinfo || return 1; done; }
    isa=v2
    if has avx2 fma bmi2; then isa=avx2; fi
    if has avx512f avx512bw avx512cd avx512dq avx512vl; then isa=avx512; fi
    configure+=("-DTENSORLITE_CPU_ISAS=$isa")
  fi
  "${configure[@]}" >/dev/null
fi

targets=(mnist_cnn)
if command -v nvidia-smi >/dev/null && ninja -C build/release -t query tensorlite_cuda >/dev/null 2>&1; then
  targets+=(tensorlite_cuda)
fi
cmake --build --preset release --target "${targets[@]}"
# The sample is a sixth of MNIST, on which the model's own recipe would stop learning early: varied images, more epochs, a slower decay.
[ $# -gt 0 ] || set -- --augment --optimizer adam --gamma 0.87 --epochs 20 --report report
exec build/release/bin/mnist_cnn "$@"
