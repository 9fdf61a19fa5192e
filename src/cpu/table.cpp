// This instruction set's kernels as one table: the only symbol that leaves the set.
#include "kernels.hpp"

namespace tensorlite::cpu::TL_CPU_NS {
namespace {
const KernelTable kTable{TL_KERNELS(TL_KERNEL_ENTRY)};
}
}  // namespace tensorlite::cpu::TL_CPU_NS

#define TL_TABLE_NAME(isa) TL_TABLE_NAME_(isa)
#define TL_TABLE_NAME_(isa) cpu_kernel_table_##isa
extern "C" const tensorlite::KernelTable& TL_TABLE_NAME(TL_CPU_NS)() { return tensorlite::cpu::TL_CPU_NS::kTable; }
