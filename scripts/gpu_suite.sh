#!/usr/bin/env bash
# Everything that needs a GPU, in one run of under nine minutes on 16 cores: builds Release with the CUDA plug-in, runs the tests on GPU:0,
# trains the digit network on it and on the CPU, runs the benchmarks. Logs go to ${OUT:-build/gpu-logs}; a table of results comes last.
#
#   OUT=DIR     where the logs go              ARCH=90   compute capability to build for (default: the GPU's own)
#   DATA=DIR     the four MNIST files (default: the bundled sample)
#   CARRY=DIR   headers of CLI11 and nlohmann/json, where the system has none (default: .carry/include)
set -uo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-build/gpu-logs}
carry=$(realpath -m "${CARRY:-.carry/include}")
build=build/gpu
mkdir -p "$out" "$build"
rows=()
start=$SECONDS

# step NAME SECONDS COMMAND...: runs it under a time limit, with a log of its own, and adds a row to the table.
step() {
  local name=$1 limit=$2 began=$SECONDS status
  shift 2
  timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1
  status=$?
  rows+=("$(printf '%-22s %-8s %4d s' "$name" "$([ $status = 0 ] && echo ok || echo "FAILED $status")" $((SECONDS - began)))")
  echo "${rows[-1]}"
  return $status
}

# Parts of CUDA that came as Python packages: their folders for the compiler and for the loader.
nvidia=$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null || true)
if [ -n "$nvidia" ]; then
  if ! ls /usr/local/cuda/lib64/libcudnn.so.9 >/dev/null 2>&1; then export LD_LIBRARY_PATH="$nvidia/cudnn/lib:${LD_LIBRARY_PATH:-}"; fi
  if ! ls /usr/local/cuda/lib64/libcublasLt.so.13 >/dev/null 2>&1; then export LD_LIBRARY_PATH="$nvidia/cu13/lib:${LD_LIBRARY_PATH:-}"; fi
  [ -e /usr/local/cuda/include/cudnn_version.h ] || export CUDNN_ROOT="$nvidia/cudnn"
fi
export CUDACXX=${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}

# Packages of which only the headers were carried here.
prefix=$(realpath -m "$build/prefix")
headers_package() {
  [ -e "$carry/$3" ] || return 0
  mkdir -p "$prefix/$1"
  printf 'add_library(%s INTERFACE IMPORTED)\nset_target_properties(%s PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "%s")\n' "$2" "$2" "$carry" \
    >"$prefix/$1/$1Config.cmake"
  configure+=("-D$1_DIR=$prefix/$1")
}
configure=(cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG" -DTENSORLITE_CUDA=ON
  "-DTENSORLITE_CUDA_ARCHITECTURES=${ARCH:-}" -DTENSORLITE_CPU_ISAS=avx2)
headers_package CLI11 CLI11::CLI11 CLI/CLI.hpp
headers_package nlohmann_json nlohmann_json::nlohmann_json nlohmann/json.hpp
ls /usr/lib/*/cmake/benchmark/benchmarkConfig.cmake >/dev/null 2>&1 || configure+=(-DTENSORLITE_BUILD_BENCHMARKS=OFF)

{ nvidia-smi; "$CUDACXX" --version; cmake --version; nproc; } >"$out/machine.log" 2>&1
step configure 60 "${configure[@]}" || { cat "$out/configure.log"; exit 1; }
step build 270 cmake --build "$build" -j "$(nproc)" -- -k 0 || grep -E "error|FAILED" "$out/build.log" | head -40

export TENSORLITE_TEST_DEVICE=GPU:0 TENSORLITE_REQUIRE_DEVICE=1 TENSORLITE_FORCE_GPU_ALLOW_GROWTH=true
step doctor 20 "$build/bin/tensorlite-doctor"
step device_tour 30 "$build/bin/device_tour"
step agreement 90 "$build/bin/gpu_agreement_test"
step tests 120 ctest --test-dir "$build" -j 4 --timeout 60 --output-on-failure -E '^(cpu_|data_|io_|report_|gpu_|device_)'
step device_tests 60 ctest --test-dir "$build" -j 4 --timeout 50 --output-on-failure -R '^device_'
step faults 60 "$build/bin/gpu_faults_test"
# Once more with every kernel waited for, so that a failure names its op.
grep -q "FAILED" <<<"${rows[*]: -3}" && TENSORLITE_CUDA_SYNC=1 step agreement_sync 90 "$build/bin/gpu_agreement_test"

train=("$build/bin/mnist_cnn" --model pytorch --seed 1)
if [ -n "${DATA:-}" ]; then train+=(--data "$DATA"); fi
step mnist_gpu 60 "${train[@]}" --device gpu --epochs 3 --json "$out/mnist_gpu.json"
step mnist_graph 60 "${train[@]}" --device gpu --graph --epochs 3 --json "$out/mnist_graph.json"
step mnist_graph_tf32 60 "${train[@]}" --device gpu --graph --epochs 4 --batch 512 --precision tf32 --json "$out/mnist_graph_tf32.json"
for i in 1 2; do
  step "mnist_deterministic$i" 60 "${train[@]}" --device gpu --graph --deterministic --epochs 1 --json "$out/mnist_deterministic$i.json"
done
step mnist_both 60 "${train[@]}" --device cpu,gpu --epochs 1 --limit 6400 --json "$out/mnist_both.json" --report "$out/report"
if command -v compute-sanitizer >/dev/null && [ $((SECONDS - start)) -lt 400 ]; then
  step memcheck 90 compute-sanitizer --error-exitcode 9 "$build/bin/gpu_agreement_test" "gpu: reductions"
fi
for bench in "$build"/bin/*_bench; do
  [ -x "$bench" ] && [ $((SECONDS - start)) -lt 480 ] && step "$(basename "$bench")" 60 "$bench" --benchmark_min_time=0.05
done

for log in agreement tests device_tests; do
  grep -hE "^(All tests|test cases:|assertions:|[0-9]+% tests)|Failed|Timeout|with expansion" "$out/$log.log" | sort | uniq -c | sort -rn | head -25
done
tail -n 4 "$out/mnist_gpu.log"
python3 benchmarks/compare_training.py "$out"/mnist_both.json
python3 benchmarks/compare_training.py "$out"/mnist_{gpu,graph,graph_tf32}.json
python3 benchmarks/compare_training.py "$out"/mnist_deterministic{1,2}.json
printf '%s\n' "--- $((SECONDS - start)) s in all" "${rows[@]}"
