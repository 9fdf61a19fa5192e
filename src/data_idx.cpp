// IDX, the format of the MNIST files: 00 00, a type code, the number of axes, one big-endian 32-bit size per axis, then the values.
#include <tensorlite/data.hpp>

#include "io_file.hpp"

#include <algorithm>
#include <filesystem>

namespace tensorlite::data {

namespace {

using detail::Bytes;
using detail::concat;

constexpr const char* kOp = "read_idx";
constexpr int kUnsignedByte = 0x08;

std::string hex32(std::uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", value);
  return text;
}

std::uint32_t big_endian32(const std::uint8_t* p) {
  return std::uint32_t{p[0]} << 24 | std::uint32_t{p[1]} << 16 | std::uint32_t{p[2]} << 8 | std::uint32_t{p[3]};
}

std::string magic_text(std::uint32_t magic) {
  if (magic == 0x00000801) return "0x00000801 (labels)";
  if (magic == 0x00000803) return "0x00000803 (images)";
  return hex32(magic);
}

void check_magic(const std::string& path, const Bytes& bytes, int axes) {
  if (bytes.empty()) throw IoError(kOp, path, "is empty (0 bytes), expected an IDX file");
  const std::size_t header = 4 + 4 * static_cast<std::size_t>(axes);
  if (bytes.size() >= 2 && (bytes[0] != 0 || bytes[1] != 0))
    throw IoError(
        kOp, path,
        concat("not gzip (starts with ", detail::first_bytes(bytes, 2), ") and not IDX (starts with 00 00)", detail::guess_content(bytes)));
  const std::uint32_t expected = kUnsignedByte << 8 | static_cast<std::uint32_t>(axes);
  if (bytes.size() >= 4 && big_endian32(bytes.data()) != expected)
    throw IoError(kOp, path, concat("has magic number ", magic_text(big_endian32(bytes.data())), ", expected ", magic_text(expected)));
  if (bytes.size() < header) throw IoError(kOp, path, concat("has ", bytes.size(), " bytes, expected a header of ", header, " bytes"));
}

std::string find_idx(const std::string& folder, std::string_view stem, std::string_view kind) {
  const std::filesystem::path base(folder);
  for (const char* separator : {"-", "."})
    for (const char* suffix : {"", ".gz"}) {
      const auto candidate = base / concat(stem, separator, kind, suffix);
      std::error_code ignored;
      if (std::filesystem::exists(candidate, ignored)) return candidate.string();
    }
  throw IoError("read_mnist", folder, concat("holds no file ", stem, "-", kind, ", with or without .gz"));
}

}  // namespace

IdxArray read_idx(const std::string& path, int axes) {
  Bytes bytes = detail::read_file_unpacked(kOp, path);
  check_magic(path, bytes, axes);
  IdxArray array;
  for (int i = 0; i < axes; ++i) array.sizes.push_back(big_endian32(bytes.data() + 4 + 4 * i));
  const std::int64_t header = 4 + 4 * axes, actual = static_cast<std::int64_t>(bytes.size());
  const auto payload = detail::checked_nbytes(array.sizes, 1);
  if (!payload || *payload > std::numeric_limits<std::int64_t>::max() - header)
    throw IoError(kOp, path, concat("its header asks for ", array.sizes, " values, more than a file can hold"));
  if (actual != header + *payload)
    throw IoError(kOp, path,
                  concat("has ", actual, " bytes, expected ", header + *payload, " (a header of ", header, " and ", array.sizes, " values)",
                         actual < header + *payload ? ": the file is truncated" : ": bytes are left over"));
  bytes.erase(bytes.begin(), bytes.begin() + header);
  array.values = std::move(bytes);
  return array;
}

ImageSet read_idx_images(const std::string& images_path, const std::string& labels_path, int num_classes) {
  IdxArray images = read_idx(images_path, 3), labels = read_idx(labels_path, 1);
  if (images.sizes[0] != labels.sizes[0])
    throw IoError(kOp, labels_path, concat("has ", labels.sizes[0], " labels, but '", images_path, "' has ", images.sizes[0], " images"));
  const auto bad = std::find_if(labels.values.begin(), labels.values.end(), [&](int label) { return label >= num_classes; });
  if (bad != labels.values.end())
    throw IoError(kOp, labels_path,
                  concat("label ", int{*bad}, " at index ", bad - labels.values.begin(), " is outside 0..", num_classes - 1));
  return {images.sizes[0], images.sizes[1], images.sizes[2], std::move(images.values), std::move(labels.values)};
}

Mnist read_mnist(const std::string& folder) {
  const auto read = [&](const char* part) {
    const std::string images = find_idx(folder, concat(part, "-images"), "idx3-ubyte");
    return read_idx_images(images, find_idx(folder, concat(part, "-labels"), "idx1-ubyte"));
  };
  return {read("train"), read("t10k")};
}

}  // namespace tensorlite::data
