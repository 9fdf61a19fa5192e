#!/usr/bin/env bash
# Including the umbrella at -O2 costs at most 1.0 s more than the standard headers it includes (medians of processor time).
set -euo pipefail
cd "$(dirname "$0")/.."
limit_ms=1000 rounds=${1:-5}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo '#include <tensorlite/tensorlite.hpp>' >"$work/umbrella.cpp"
grep -rhoE '^#include <[a-z_]+>' include/tensorlite --include='*.hpp' | sort -u >"$work/standard.cpp"

# User plus system time of one compilation in milliseconds: less disturbed than the clock by whatever else runs.
cost_ms() {
  local times
  times=$({ TIMEFORMAT='%U %S' && time "${CXX:-g++}" -std=c++20 -O2 -Iinclude -c "$1" -o "$work/out.o"; } 2>&1)
  awk '{ printf "%d\n", ($1 + $2) * 1000 }' <<<"$times"
}

for _ in $(seq "$rounds"); do
  echo "$(cost_ms "$work/umbrella.cpp") $(cost_ms "$work/standard.cpp")" >>"$work/times"
done
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
umbrella=$(cut -d' ' -f1 "$work/times" | median)
standard=$(cut -d' ' -f2 "$work/times" | median)
echo "include cost: umbrella ${umbrella} ms, its standard headers ${standard} ms, difference $((umbrella - standard)) ms (limit ${limit_ms} ms)"
[ $((umbrella - standard)) -le $limit_ms ]
