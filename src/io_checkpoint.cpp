// Checkpoints: the parts of a training run in one safetensors file.
#include <tensorlite/io.hpp>

#include "io_file.hpp"

#include <charconv>

namespace tensorlite::io {

namespace {

using detail::concat;

constexpr const char* kSeed = "random.seed";
constexpr const char* kOffset = "random.offset";

std::uint64_t random_field(const Checkpoint& checkpoint, const char* key) {
  const auto found = checkpoint.metadata.find(key);
  std::uint64_t value = 0;
  if (found != checkpoint.metadata.end()) {
    const std::string& text = found->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return value;
  }
  throw ValueError("restore_random_state", concat("the checkpoint's metadata hold no number '", key, "'"));
}

}  // namespace

void save_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  Safetensors content{{}, checkpoint.metadata};
  for (const auto& [part, tensors] : checkpoint.parts) {
    TL_CHECK(!part.empty() && part.find('.') == part.npos, ValueError, "save_checkpoint", "the part's name '", part,
             "' is empty or has a dot in it");
    for (const auto& [name, tensor] : tensors) content.tensors[concat(part, ".", name)] = tensor;
  }
  const PhiloxKey state = get_rng_state();
  content.metadata[kSeed] = std::to_string(state.seed);
  content.metadata[kOffset] = std::to_string(state.offset);
  save_safetensors(path, content);
}

Checkpoint load_checkpoint(const std::string& path) {
  Safetensors content = load_safetensors(path);
  Checkpoint checkpoint{{}, std::move(content.metadata)};
  for (const auto& [name, tensor] : content.tensors) {
    const auto dot = name.find('.');
    if (dot == name.npos || dot == 0)
      throw IoError("load_checkpoint", path, concat("tensor '", name, "' belongs to no part (\"part.name\")"));
    checkpoint.parts[name.substr(0, dot)][name.substr(dot + 1)] = tensor;
  }
  return checkpoint;
}

void restore_random_state(const Checkpoint& checkpoint) {
  set_rng_state({random_field(checkpoint, kSeed), random_field(checkpoint, kOffset)});
}

void write_text(const std::string& path, std::string_view text) {
  detail::AtomicFile file("write_text", path);
  file.write(text);
  file.commit();
}

}  // namespace tensorlite::io
