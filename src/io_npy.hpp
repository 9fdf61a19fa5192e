// Private to the build: npy in memory, for .npy files and the members of .npz archives.
#pragma once

#include <tensorlite/io.hpp>
#include <tensorlite/ops/shape.hpp>

#include "io_file.hpp"

namespace tensorlite::io {

/// `label` names the array in messages: "" or "entry 'x.npy' ".
Tensor decode_npy(const char* op, const std::string& path, const std::string& label, std::span<const std::uint8_t> bytes);
/// The header of `tensor`'s npy form; its row-major bytes follow.
std::string npy_header(const char* op, const Tensor& tensor);
/// On CPU:0 and row-major, not recorded.
Tensor host_copy(const Tensor& tensor);

}  // namespace tensorlite::io
