// npz: a zip archive of .npy files. Sizes and offsets are taken from the central directory and checked before anything is unpacked.
#include "io_npy.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstring>

namespace tensorlite::io {

namespace {

using detail::Bytes;
using detail::concat;

constexpr std::uint32_t kLocalHeader = 0x04034b50, kCentralHeader = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                        kEnd64Locator = 0x07064b50;
constexpr std::uint32_t kIn64 = 0xffffffff;  // the field's value is in the zip64 extra field
constexpr int kStored = 0, kDeflated = 8;
constexpr std::size_t kLocalSize = 30, kCentralSize = 46, kEndSize = 22, kEnd64Size = 56, kLocatorSize = 20;
constexpr std::int64_t kBestRatio = 1032;  // deflate cannot pack better

struct Entry {
  std::string name;
  int method = kStored;
  std::uint32_t crc = 0;
  std::uint64_t packed_size = 0, size = 0, offset = 0;
};

std::uint32_t checksum(std::span<const std::uint8_t> bytes) { return static_cast<std::uint32_t>(crc32_z(0, bytes.data(), bytes.size())); }

// ------------------------------------------------------------------------------------------------------------------- reading

class ZipReader {
 public:
  explicit ZipReader(const std::string& path) : path_(path), bytes_(detail::read_file("load_npz", path)) {}

  std::vector<Entry> entries() {
    std::uint64_t count = 0, at = find_directory(count);
    std::vector<Entry> result;
    for (; count > 0; --count) result.push_back(read_entry(at));
    return result;
  }

  Bytes unpack(const Entry& entry) const {
    need(entry.offset, kLocalSize, "a local header");
    if (u32(entry.offset) != kLocalHeader) fail(concat("entry '", entry.name, "' has no local header"));
    const std::uint64_t start = entry.offset + kLocalSize + u16(entry.offset + 26) + u16(entry.offset + 28);
    need(start, entry.packed_size, concat("entry '", entry.name, "'"));
    const auto packed = std::span(bytes_).subspan(start, entry.packed_size);
    Bytes plain = entry.method == kStored ? Bytes(packed.begin(), packed.end()) : inflated(entry, packed);
    if (checksum(plain) != entry.crc) fail(concat("entry '", entry.name, "': checksum mismatch: the file is corrupted"));
    return plain;
  }

  [[noreturn]] void fail(const std::string& what) const { throw IoError("load_npz", path_, what); }

 private:
  std::uint32_t u16(std::uint64_t at) const { return bytes_[at] | std::uint32_t{bytes_[at + 1]} << 8; }
  std::uint32_t u32(std::uint64_t at) const { return u16(at) | u16(at + 2) << 16; }
  std::uint64_t u64(std::uint64_t at) const { return u32(at) | std::uint64_t{u32(at + 4)} << 32; }
  void need(std::uint64_t at, std::uint64_t count, const std::string& what) const {
    if (at > bytes_.size() || count > bytes_.size() - at) fail(concat("ends inside ", what, ": the file is truncated or corrupted"));
  }

  /// Where the central directory begins, from the record at the end of the file, which a comment may follow.
  std::uint64_t find_directory(std::uint64_t& count) const {
    if (bytes_.size() < 4 || (u32(0) != kLocalHeader && u32(0) != kEnd))
      fail(concat("not npz (starts with ", detail::first_bytes(bytes_, 4), ", expected 50 4b 03 04)", detail::guess_content(bytes_)));
    if (bytes_.size() < kEndSize) fail("too short for a zip archive");
    const std::uint64_t last = bytes_.size() - kEndSize, first = last > 0xffff ? last - 0xffff : 0;
    for (std::uint64_t at = last + 1; at-- > first;) {
      if (u32(at) != kEnd) continue;
      if (at >= kLocatorSize && u32(at - kLocatorSize) == kEnd64Locator) return find_directory64(u64(at - kLocatorSize + 8), count);
      count = u16(at + 10);
      return u32(at + 16);
    }
    fail("has no zip directory: the file is truncated");
  }

  std::uint64_t find_directory64(std::uint64_t at, std::uint64_t& count) const {
    need(at, kEnd64Size, "the zip64 directory record");
    if (u32(at) != kEnd64) fail("has no zip64 directory record where it should be");
    count = u64(at + 32);
    return u64(at + 48);
  }

  Entry read_entry(std::uint64_t& at) const {
    need(at, kCentralSize, "the zip directory");
    if (u32(at) != kCentralHeader) fail("has a zip directory that is corrupted");
    const std::uint64_t name_size = u16(at + 28), extra_size = u16(at + 30), comment_size = u16(at + 32);
    need(at, kCentralSize + name_size + extra_size + comment_size, "the zip directory");
    Entry entry{{reinterpret_cast<const char*>(&bytes_[at]) + kCentralSize, name_size},
                static_cast<int>(u16(at + 10)),
                u32(at + 16),
                u32(at + 20),
                u32(at + 24),
                u32(at + 42)};
    read_extra64(entry, at + kCentralSize + name_size, extra_size);
    if (u16(at + 8) & 1) fail(concat("entry '", entry.name, "' is encrypted"));
    if (entry.method != kStored && entry.method != kDeflated)
      fail(concat("entry '", entry.name, "' has compression method ", entry.method, ", expected 0 (stored) or 8 (deflated)"));
    if (entry.method == kStored && entry.size != entry.packed_size) fail(concat("entry '", entry.name, "' states two different sizes"));
    at += kCentralSize + name_size + extra_size + comment_size;
    return entry;
  }

  /// Replaces the fields that did not fit into 32 bits.
  void read_extra64(Entry& entry, std::uint64_t at, std::uint64_t size) const {
    const std::uint64_t end = at + size;
    while (end - at >= 4) {
      const std::uint32_t id = u16(at), length = u16(at + 2);
      at += 4;
      if (length > end - at) return;
      if (id == 1) {
        std::uint64_t field = at;
        for (std::uint64_t* value : {&entry.size, &entry.packed_size, &entry.offset})
          if (*value == kIn64 && field + 8 <= at + length) {
            *value = u64(field);
            field += 8;
          }
      }
      at += length;
    }
  }

  Bytes inflated(const Entry& entry, std::span<const std::uint8_t> packed) const {
    const auto bad = [&](const char* what) { fail(concat("entry '", entry.name, "': ", what)); };
    if (entry.size > packed.size() * static_cast<std::uint64_t>(kBestRatio) + 64) bad("states a size that its packed bytes cannot hold");
    Bytes plain(entry.size + 1);  // the extra byte shows data that go on
    z_stream stream{};
    if (inflateInit2(&stream, -15) != Z_OK) throw std::bad_alloc();
    const std::unique_ptr<z_stream, int (*)(z_stream*)> freed(&stream, inflateEnd);
    std::size_t consumed = 0;
    int code = Z_OK;
    while (code == Z_OK) {
      constexpr std::size_t most = std::size_t{1} << 30;
      stream.next_in = const_cast<Bytef*>(packed.data() + consumed);
      stream.avail_in = static_cast<uInt>(std::min(most, packed.size() - consumed));
      const std::size_t used = stream.next_out ? static_cast<std::size_t>(stream.next_out - plain.data()) : 0;
      stream.next_out = plain.data() + used;
      stream.avail_out = static_cast<uInt>(std::min(most, plain.size() - used));
      code = inflate(&stream, Z_NO_FLUSH);
      consumed = static_cast<std::size_t>(stream.next_in - packed.data());
    }
    if (code != Z_STREAM_END) bad(code == Z_BUF_ERROR ? "packed data end before end of stream" : "corrupted packed data");
    if (stream.next_out != plain.data() + entry.size) bad("unpacks to another size than stated");
    plain.pop_back();
    return plain;
  }

  const std::string& path_;
  Bytes bytes_;
};

// ------------------------------------------------------------------------------------------------------------------- writing

void put(std::string& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i, value >>= 8) out += static_cast<char>(value & 0xff);
}

/// The fields that local and central headers share, from "version needed" to the extra field's length.
void put_common(std::string& out, const Entry& entry) {
  constexpr std::uint64_t version = 20, utf8_name = 1 << 11, time = 0, date = 1 << 5 | 1;  // 1980-01-01, so that files are reproducible
  put(out, version, 2);
  put(out, utf8_name, 2);
  put(out, static_cast<std::uint64_t>(entry.method), 2);
  put(out, time, 2);
  put(out, date, 2);
  put(out, entry.crc, 4);
  put(out, entry.packed_size, 4);
  put(out, entry.size, 4);
  put(out, entry.name.size(), 2);
  put(out, 0, 2);
}

Bytes deflated(std::span<const std::uint8_t> plain) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) != Z_OK) throw std::bad_alloc();
  const std::unique_ptr<z_stream, int (*)(z_stream*)> freed(&stream, deflateEnd);
  Bytes packed(deflateBound(&stream, plain.size()));
  stream.next_in = const_cast<Bytef*>(plain.data());
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  return packed;
}

Entry write_entry(detail::AtomicFile& file, const std::string& path, const std::string& name, const Tensor& tensor,
                  Compression compression) {
  const Tensor host = host_copy(tensor);
  const std::string header = npy_header("save_npz", host);
  Bytes bytes(header.begin(), header.end());
  const auto* data = static_cast<const std::uint8_t*>(host.raw().data);
  bytes.insert(bytes.end(), data, data + host.nbytes());
  if (bytes.size() >= kIn64)
    throw IoError("save_npz", path, concat("array '", name, "' has ", bytes.size(), " bytes, more than 4 GiB: use save_safetensors"));
  Entry entry{name + ".npy", kStored, checksum(bytes), bytes.size(), bytes.size(), static_cast<std::uint64_t>(file.bytes_written())};
  if (compression == Compression::deflated) {
    bytes = deflated(bytes);
    entry.method = kDeflated;
    entry.packed_size = bytes.size();
  }
  std::string local;
  put(local, kLocalHeader, 4);
  put_common(local, entry);
  file.write(local + entry.name);
  file.write(bytes.data(), bytes.size());
  return entry;
}

void write_directory(detail::AtomicFile& file, const std::vector<Entry>& entries) {
  std::string directory;
  for (const Entry& entry : entries) {
    put(directory, kCentralHeader, 4);
    put(directory, 20, 2);  // made by version 2.0
    put_common(directory, entry);
    put(directory, 0, 10);  // no comment, disk 0, attributes
    put(directory, entry.offset, 4);
    directory += entry.name;
  }
  std::string end;
  put(end, kEnd, 4);
  put(end, 0, 4);
  put(end, entries.size(), 2);
  put(end, entries.size(), 2);
  put(end, directory.size(), 4);
  put(end, static_cast<std::uint64_t>(file.bytes_written()), 4);
  put(end, 0, 2);
  file.write(directory);
  file.write(end);
}

}  // namespace

NamedTensors load_npz(const std::string& path) {
  ZipReader zip(path);
  NamedTensors tensors;
  for (const Entry& entry : zip.entries()) {
    constexpr std::string_view suffix = ".npy";
    if (!entry.name.ends_with(suffix)) zip.fail(concat("entry '", entry.name, "' is no .npy array"));
    const std::string name = entry.name.substr(0, entry.name.size() - suffix.size());
    if (tensors.count(name)) zip.fail(concat("holds the entry '", entry.name, "' twice"));
    tensors[name] = decode_npy("load_npz", path, concat("entry '", entry.name, "': "), zip.unpack(entry));
  }
  return tensors;
}

void save_npz(const std::string& path, const NamedTensors& tensors, Compression compression) {
  constexpr std::size_t most_entries = 0xffff;
  if (tensors.size() >= most_entries)
    throw IoError("save_npz", path, concat(tensors.size(), " arrays, at most ", most_entries - 1, " fit"));
  detail::AtomicFile file("save_npz", path);
  std::vector<Entry> entries;
  for (const auto& [name, tensor] : tensors) {
    entries.push_back(write_entry(file, path, name, tensor, compression));
    if (file.bytes_written() >= kIn64) throw IoError("save_npz", path, "more than 4 GiB in all: use save_safetensors");
  }
  write_directory(file, entries);
  file.commit();
}

}  // namespace tensorlite::io
