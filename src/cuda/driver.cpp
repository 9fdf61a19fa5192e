#include "driver.hpp"

#include "common.hpp"

#include <atomic>

namespace tensorlite::cuda {
namespace {

std::atomic<bool> forked{false};

}  // namespace

Driver::Driver() {
#define TL_DRIVER_RESOLVE(member, symbol) library.resolve(member, #symbol);
  TL_DRIVER_FUNCTIONS(TL_DRIVER_RESOLVE)
#undef TL_DRIVER_RESOLVE
  if (get_version) get_version(&version);
  if (!library.complete()) return;
  status = init(0);
  if (status == CUDA_SUCCESS) status = device_count(&count);
  if (status != CUDA_SUCCESS) count = 0;
  platform::at_fork_in_child([] { forked = true; });
}

std::string Driver::text(CUresult result) const {
  const char* words = nullptr;
  if (error_string) error_string(result, &words);
  return words ? words : "CUDA error " + std::to_string(static_cast<int>(result));
}

Driver& driver() {
  static Driver* instance = new Driver;  // never destroyed: tensors of static lifetime come later
  return *instance;
}

void refuse_after_fork(const char* op) {
  TL_CHECK(!forked.load(std::memory_order_relaxed), DeviceUnavailableError, op,
           "CUDA cannot be used after fork(): this process was forked from one that had already initialized it. Start the child with exec, "
           "or fork before the first use of a GPU; the CPU still works here");
}

}  // namespace tensorlite::cuda
