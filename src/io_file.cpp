#include "io_file.hpp"

#include "platform.hpp"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>

namespace tensorlite::detail {

namespace {

std::string errno_text() { return std::strerror(errno); }

using FilePointer = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

FilePointer open(const char* op, const std::string& path) {
  FilePointer file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) throw IoError(op, path, concat("cannot open: ", errno_text()));
  return file;
}

/// inflate() over a buffer, with the stream freed on every way out.
class Inflater {
 public:
  explicit Inflater(int window_bits) {
    if (inflateInit2(&stream, window_bits) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  z_stream stream{};
};

/// Deflate cannot pack better than 1032 to 1, so a stated size above that is a lie.
constexpr std::size_t kBestRatio = 1032;
constexpr std::size_t kChunk = std::size_t{1} << 20;

std::size_t stated_size(const Bytes& packed) {
  if (packed.size() < 18) return 0;
  const std::uint8_t* p = packed.data() + packed.size() - 4;
  const std::size_t size = std::size_t{p[0]} | std::size_t{p[1]} << 8 | std::size_t{p[2]} << 16 | std::size_t{p[3]} << 24;
  return std::min(size, packed.size() * kBestRatio);
}

std::string gzip_error(const z_stream& stream, int code) {
  const std::string_view text = stream.msg ? stream.msg : "";
  if (text == "incorrect data check" || text == "incorrect length check")
    return concat("gzip checksum mismatch (", text, "): the file is corrupted");
  if (code == Z_BUF_ERROR) return concat("gzip data ends before end of stream, after ", stream.total_in, " bytes: the file is truncated");
  return concat("corrupted gzip data", text.empty() ? "" : ": ", text);
}

}  // namespace

InputFile::InputFile(const char* op, const std::string& path) : op_(op), path_(path), file_(open(op, path)) {
  std::error_code error;
  size_ = static_cast<std::int64_t>(std::filesystem::file_size(path, error));
  if (error) throw IoError(op, path, concat("cannot read: ", error.message()));
}

void InputFile::read(void* to, std::size_t bytes) {
  if (bytes > 0 && std::fread(to, 1, bytes, file_.get()) != bytes)
    throw IoError(op_, path_, std::ferror(file_.get()) ? concat("cannot read: ", errno_text()) : "ended while it was read");
}

Bytes read_file(const char* op, const std::string& path) {
  const FilePointer file = open(op, path);
  std::error_code unknown;
  const auto size = std::filesystem::file_size(path, unknown);
  Bytes bytes(unknown ? kChunk : static_cast<std::size_t>(size) + 1);
  std::size_t used = 0;
  for (;;) {
    const std::size_t got = std::fread(bytes.data() + used, 1, bytes.size() - used, file.get());
    if (std::ferror(file.get())) throw IoError(op, path, concat("cannot read: ", errno_text()));
    used += got;
    if (used < bytes.size()) break;
    bytes.resize(bytes.size() * 2);
  }
  bytes.resize(used);
  return bytes;
}

bool is_gzip(const Bytes& bytes) { return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b; }

Bytes gunzip(const char* op, const std::string& path, const Bytes& packed) {
  Inflater inflater(15 + 16);
  z_stream& stream = inflater.stream;
  Bytes bytes(std::max(stated_size(packed) + 1, std::size_t{64}));
  std::size_t used = 0, consumed = 0;
  for (;;) {
    stream.next_in = const_cast<Bytef*>(packed.data() + consumed);
    stream.avail_in = static_cast<uInt>(std::min(packed.size() - consumed, std::size_t{1} << 30));
    stream.next_out = bytes.data() + used;
    stream.avail_out = static_cast<uInt>(std::min(bytes.size() - used, std::size_t{1} << 30));
    const int code = inflate(&stream, Z_NO_FLUSH);
    consumed = static_cast<std::size_t>(stream.next_in - packed.data());
    used = static_cast<std::size_t>(stream.next_out - bytes.data());
    if (code == Z_STREAM_END) {
      const bool another_member = packed.size() - consumed >= 2 && packed[consumed] == 0x1f && packed[consumed + 1] == 0x8b;
      if (!another_member) break;
      inflateReset(&stream);
    } else if (code != Z_OK && !(code == Z_BUF_ERROR && stream.avail_out == 0)) {
      throw IoError(op, path, gzip_error(stream, code));
    } else if (consumed == packed.size() && stream.avail_out > 0) {
      throw IoError(op, path, gzip_error(stream, Z_BUF_ERROR));
    }
    if (used == bytes.size()) bytes.resize(bytes.size() * 2);
  }
  bytes.resize(used);
  return bytes;
}

Bytes read_file_unpacked(const char* op, const std::string& path) {
  Bytes bytes = read_file(op, path);
  return is_gzip(bytes) ? gunzip(op, path, bytes) : bytes;
}

std::string first_bytes(std::span<const std::uint8_t> bytes, int count) {
  std::string text;
  for (std::size_t i = 0; i < std::min(bytes.size(), static_cast<std::size_t>(count)); ++i) {
    char hex[4];
    std::snprintf(hex, sizeof hex, "%s%02x", i ? " " : "", bytes[i]);
    text += hex;
  }
  return text;
}

std::string guess_content(std::span<const std::uint8_t> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), std::size_t{64}));
  const auto start = text.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (start != text.npos && text[start] == '<') return ": it looks like an HTML page, perhaps a failed download";
  if (text.substr(0, 4) == std::string_view("PK\3\4")) return ": it is a zip archive, unpack it first";
  if (text.substr(0, 2) == "\xff\xfe" || text.substr(0, 2) == "\xfe\xff") return ": it is UTF-16 text, save it as UTF-8";
  if (text.substr(0, 7) == "version") return ": it looks like a Git LFS pointer, fetch the file itself";
  return "";
}

std::optional<std::int64_t> checked_nbytes(const Dims& sizes, std::int64_t item_size) {
  constexpr std::int64_t limit = std::numeric_limits<std::int64_t>::max();
  if (std::any_of(sizes.begin(), sizes.end(), [](std::int64_t n) { return n < 0; })) return std::nullopt;
  if (std::any_of(sizes.begin(), sizes.end(), [](std::int64_t n) { return n == 0; })) return 0;
  std::int64_t bytes = item_size;
  for (const std::int64_t n : sizes) {
    if (bytes > limit / n) return std::nullopt;
    bytes *= n;
  }
  return bytes;
}

// ---------------------------------------------------------------------------------------------------------------- AtomicFile

AtomicFile::AtomicFile(const char* op, std::string path) : op_(op), path_(std::move(path)) {
  std::random_device random;
  temporary_ = concat(path_, ".", random(), random(), ".tmp");
  file_ = std::fopen(temporary_.c_str(), "wb");
  if (!file_) throw IoError(op_, path_, concat("cannot create a file in its folder: ", errno_text()));
}

AtomicFile::~AtomicFile() {
  if (file_) std::fclose(file_);
  if (!temporary_.empty()) std::remove(temporary_.c_str());
}

void AtomicFile::fail(const char* what) { throw IoError(op_, path_, concat(what, ": ", errno_text(), "; the file is as it was before")); }

void AtomicFile::write(const void* data, std::size_t bytes) {
  if (bytes > 0 && std::fwrite(data, 1, bytes, file_) != bytes) fail("cannot write");
  written_ += static_cast<std::int64_t>(bytes);
}

void AtomicFile::commit() {
  if (std::fflush(file_) != 0 || !platform::flush_to_disk(file_)) fail("cannot write");
  if (std::fclose(std::exchange(file_, nullptr)) != 0) fail("cannot write");
  std::error_code error;
  std::filesystem::rename(temporary_, path_, error);
  if (error) throw IoError(op_, path_, concat("cannot replace: ", error.message(), "; the file is as it was before"));
  temporary_.clear();
}

}  // namespace tensorlite::detail
