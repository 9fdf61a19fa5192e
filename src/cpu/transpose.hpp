// Copies between layouts whose dense axes differ (NCHW to NHWC, a transposed matrix).
#pragma once

#include "dispatch.hpp"

namespace tensorlite::cpu::TL_CPU_NS {

/// Copies in square tiles that stay in the first-level cache; false, having done nothing, when the layouts do not call for it.
bool copy_transposed(const Loop<2>& loop, const View& out, const View& in);

}  // namespace tensorlite::cpu::TL_CPU_NS
