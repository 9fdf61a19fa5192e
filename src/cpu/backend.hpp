// The CPU as a Backend: host memory, and the kernels of the best instruction set that this machine has.
#pragma once

#include <tensorlite/backend.hpp>

namespace tensorlite::cpu {

const Backend& backend();

/// Instruction set of the kernels in use: "avx512", "avx2", "v2" or "native".
const char* instruction_set();
/// Those compiled in that this machine has, best first.
std::vector<const char*> usable_instruction_sets();

}  // namespace tensorlite::cpu
