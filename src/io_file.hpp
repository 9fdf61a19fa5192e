// Private to the build: whole files in, whole files out. Every failure is an IoError that names the file.
#pragma once

#include <tensorlite/base.hpp>

#include <cstdio>
#include <memory>
#include <optional>

namespace tensorlite::detail {

using Bytes = std::vector<std::uint8_t>;

/// All bytes of a file, as they are.
Bytes read_file(const char* op, const std::string& path);
/// All bytes of a file; unpacked when it is gzip, whatever its name says.
Bytes read_file_unpacked(const char* op, const std::string& path);
/// 1f 8b
bool is_gzip(const Bytes& bytes);
/// Unpacks a gzip file (one or several members).
Bytes gunzip(const char* op, const std::string& path, const Bytes& packed);
/// "3c 21": the first bytes in hexadecimal, for messages.
std::string first_bytes(std::span<const std::uint8_t> bytes, int count);
/// A guess that helps: ": it looks like an HTML page, perhaps a failed download", or "" when the bytes say nothing.
std::string guess_content(std::span<const std::uint8_t> bytes);

/// A file read piece by piece.
class InputFile {
 public:
  InputFile(const char* op, const std::string& path);
  std::int64_t size() const { return size_; }
  /// Throws IoError unless all the bytes are there.
  void read(void* to, std::size_t bytes);

 private:
  const char* op_;
  const std::string& path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::int64_t size_ = 0;
};

/// numel * item_size; empty when a size is negative or the product passes 2^63 - 1.
std::optional<std::int64_t> checked_nbytes(const Dims& sizes, std::int64_t item_size);

/// Writes `path` so that it holds either its old bytes or all the new ones: a temporary file in the same folder, flushed to the disk,
/// takes its name in commit(). Destroyed without commit, nothing has changed.
class AtomicFile {
 public:
  AtomicFile(const char* op, std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  std::int64_t bytes_written() const { return written_; }
  void commit();

 private:
  [[noreturn]] void fail(const char* what);
  const char* op_;
  std::string path_, temporary_;
  std::FILE* file_ = nullptr;
  std::int64_t written_ = 0;
};

}  // namespace tensorlite::detail
