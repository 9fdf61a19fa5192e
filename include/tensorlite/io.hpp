// L4: tensors in files: NumPy's npy and npz, and safetensors. Everything is read to CPU:0 and checked before memory is taken for it;
// everything is written to a temporary file first, which takes the name only when it is whole and on the disk.
#pragma once

#include <tensorlite/tensor.hpp>

#include <map>

namespace tensorlite::io {

using NamedTensors = std::map<std::string, Tensor>;

/// Reads one array of an .npy file (format 1 to 3, either byte order, Fortran order too).
/// DTypes: those of Tensor; int8, int16 and uint16 become int32, uint32 becomes int64.
/// Throws IoError: not npy, a header that lies about the size, truncated data, another dtype.
TL_API Tensor load_npy(const std::string& path);
/// Throws IoError; DTypeError for bfloat16, which NumPy does not have.
TL_API void save_npy(const std::string& path, const Tensor& tensor);

enum class Compression : std::uint8_t { stored, deflated };
/// Reads all arrays of an .npz archive, by name without ".npy". Throws IoError.
TL_API NamedTensors load_npz(const std::string& path);
/// Throws IoError, also for an array above 4 GiB; DTypeError for bfloat16.
TL_API void save_npz(const std::string& path, const NamedTensors& tensors, Compression compression = Compression::stored);

/// Named tensors and free text about them: what a safetensors file holds, and what a checkpoint is.
struct Safetensors {
  NamedTensors tensors;
  std::map<std::string, std::string> metadata;
};
/// Throws IoError naming tensor and field: duplicate keys, ranges that overlap, leave a hole or disagree with the shape, a dtype that
/// Tensor does not have, anything that is not safetensors.
TL_API Safetensors load_safetensors(const std::string& path);
/// Throws IoError; ValueError for the name "__metadata__" and for text that is not UTF-8.
TL_API void save_safetensors(const std::string& path, const Safetensors& content);

// ---------------------------------------------------------------------------------------------------------------- checkpoints

/// The state of a training run, by part: `{{"model", net.state_dict()}, {"optimizer", optimizer.state_dict()}}`, and free text.
/// A file holds each tensor as "part.name", so that other programs find "model.conv1.weight".
struct Checkpoint {
  std::map<std::string, NamedTensors> parts;
  std::map<std::string, std::string> metadata;
};
/// Saves it as safetensors, with the state of the random numbers. Throws IoError; ValueError for a part that is unnamed or has a dot in its
/// name.
TL_API void save_checkpoint(const std::string& path, const Checkpoint& checkpoint);
/// Throws IoError, also for a tensor that belongs to no part.
TL_API Checkpoint load_checkpoint(const std::string& path);
/// Lets random numbers go on where the checkpoint was saved. Throws ValueError when it does not say where.
TL_API void restore_random_state(const Checkpoint& checkpoint);

/// Writes a text file that is either whole or as before. Throws IoError.
TL_API void write_text(const std::string& path, std::string_view text);

}  // namespace tensorlite::io
