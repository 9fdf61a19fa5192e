// npy: "\x93NUMPY", two version bytes, the header's length (2 bytes in version 1, else 4), a Python dict, the values.
#include "io_npy.hpp"

#include <tensorlite/ops/shape.hpp>

#include <algorithm>
#include <cstring>

namespace tensorlite::io {

namespace {

using detail::concat;

constexpr std::string_view kMagic = "\x93NUMPY";

struct NpyHeader {
  std::string descr;
  bool fortran_order = false;
  Dims shape;
};

/// Reads the one Python dict that an npy header may be.
class HeaderParser {
 public:
  HeaderParser(const char* op, const std::string& path, const std::string& label, std::string_view text)
      : op_(op), path_(path), label_(label), text_(text) {}

  NpyHeader parse() {
    NpyHeader header;
    bool seen[3] = {};
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      const int which = key == "descr" ? 0 : key == "fortran_order" ? 1 : key == "shape" ? 2 : 3;
      if (which == 3 || std::exchange(seen[which], true))
        fail(concat("has the key '", key, "' ", which == 3 ? "that npy does not know" : "twice"));
      if (which == 0) header.descr = descr();
      else if (which == 1) header.fortran_order = boolean();
      else header.shape = shape();
      if (!accept(',') && peek() != '}') fail("lacks a comma");
    }
    skip_spaces();
    if (at_ != text_.size()) fail("goes on after its '}'");
    for (int i = 0; i < 3; ++i)
      if (!seen[i]) fail(concat("lacks the key '", i == 0 ? "descr" : i == 1 ? "fortran_order" : "shape", "'"));
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw IoError(op_, path_, concat(label_, "npy header ", what)); }
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
  }
  char peek() {
    skip_spaces();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(concat("lacks '", c, "' at byte ", at_));
  }
  std::string quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail(concat("lacks a quoted text at byte ", at_));
    const auto end = text_.find(quote, at_ + 1);
    if (end == text_.npos) fail("has a text without an end");
    const std::string result(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return result;
  }
  std::string descr() {
    if (peek() == '[') fail("describes a structured dtype; only plain numbers are read");
    return quoted();
  }
  bool boolean() {
    skip_spaces();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    fail("has a fortran_order that is neither True nor False");
  }
  Dims shape() {
    Dims sizes;
    expect('(');
    while (!accept(')')) {
      if (sizes.size() == kMaxDims) fail(concat("has a shape of more than ", kMaxDims, " dimensions"));
      sizes.push_back(integer());
      if (!accept(',') && peek() != ')') fail("has a shape that is no tuple of numbers");
    }
    return sizes;
  }
  std::int64_t integer() {
    skip_spaces();
    const std::size_t begin = at_;
    std::int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const int digit = text_[at_] - '0';
      if (value > (std::numeric_limits<std::int64_t>::max() - digit) / 10) fail("has a size above 2^63 - 1");
      value = value * 10 + digit;
    }
    if (at_ == begin) fail("has a shape with a size that is no natural number");
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // as Python 2 wrote it
    return value;
  }

  const char* op_;
  const std::string& path_;
  const std::string& label_;
  std::string_view text_;
  std::size_t at_ = 0;
};

/// How a file's elements become a Tensor's.
struct NpyType {
  const char* code;   ///< NumPy's, without byte order
  std::int64_t size;  ///< in the file
  DType dtype;        ///< in the tensor
  void (*convert)(void* to, const void* from, std::int64_t count);
};

template <class From, class To> void convert(void* to, const void* from, std::int64_t count) {
  auto* out = static_cast<To*>(to);
  for (std::int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, static_cast<const char*>(from) + i * static_cast<std::int64_t>(sizeof value), sizeof value);
    if constexpr (std::is_same_v<To, bool>) out[i] = value != 0;
    else out[i] = static_cast<To>(value);
  }
}

constexpr NpyType kTypes[] = {
    {"f4", 4, kFloat32, convert<float, float>},
    {"f8", 8, kFloat64, convert<double, double>},
    {"f2", 2, kFloat16, convert<std::uint16_t, std::uint16_t>},
    {"i4", 4, kInt32, convert<std::int32_t, std::int32_t>},
    {"i8", 8, kInt64, convert<std::int64_t, std::int64_t>},
    {"u1", 1, kUInt8, convert<std::uint8_t, std::uint8_t>},
    {"b1", 1, kBool, convert<std::uint8_t, bool>},
    {"i1", 1, kInt32, convert<std::int8_t, std::int32_t>},
    {"i2", 2, kInt32, convert<std::int16_t, std::int32_t>},
    {"u2", 2, kInt32, convert<std::uint16_t, std::int32_t>},
    {"u4", 4, kInt64, convert<std::uint32_t, std::int64_t>},
};

/// Row-major bytes in this machine's order, or empty when they are so already.
detail::Bytes swapped(std::span<const std::uint8_t> bytes, std::int64_t size) {
  detail::Bytes result(bytes.begin(), bytes.end());
  for (auto p = result.begin(); p != result.end(); p += size) std::reverse(p, p + size);
  return result;
}

Tensor decode_values(const NpyType& type, char order, const NpyHeader& header, std::span<const std::uint8_t> payload) {
  Dims sizes = header.shape;
  if (header.fortran_order) std::reverse(sizes.begin(), sizes.end());
  Tensor tensor = empty(sizes, {.dtype = type.dtype, .device = cpu_device()});
  const bool foreign = type.size > 1 && order == (std::endian::native == std::endian::little ? '>' : '<');
  const detail::Bytes native = foreign ? swapped(payload, type.size) : detail::Bytes();
  type.convert(tensor.raw().data, foreign ? native.data() : payload.data(), tensor.numel());
  if (!header.fortran_order) return tensor;
  Dims axes;
  for (int i = sizes.size() - 1; i >= 0; --i) axes.push_back(i);
  return tensor.permute(axes).contiguous();
}

const char* npy_code(const char* op, DType dtype) {
  TL_CHECK(dtype != kBFloat16, DTypeError, op, "NumPy has no bfloat16: convert with to(kFloat32) first");
  for (const NpyType& type : kTypes)
    if (type.dtype == dtype) return type.code;
  throw DTypeError(op, concat("no npy code for ", dtype));
}

}  // namespace

Tensor decode_npy(const char* op, const std::string& path, const std::string& label, std::span<const std::uint8_t> bytes) {
  const auto fail = [&](const auto&... what) { throw IoError(op, path, concat(label, what...)); };
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.substr(0, kMagic.size()) != kMagic)
    fail("not npy (starts with ", detail::first_bytes(bytes, 6), ")", detail::guess_content(bytes));
  const int version = bytes.size() > 8 ? bytes[6] : 0;
  if (bytes.size() > 8 && (version < 1 || version > 3)) fail("npy version ", version, ", expected 1, 2 or 3");
  const std::size_t start = version == 1 ? 10 : 12;
  if (bytes.size() < start) fail("has ", bytes.size(), " bytes, too few for an npy header");
  std::size_t length = bytes[8] | std::size_t{bytes[9]} << 8;
  if (version > 1) length |= std::size_t{bytes[10]} << 16 | std::size_t{bytes[11]} << 24;
  if (length > bytes.size() - start) fail("npy header of ", length, " bytes, but only ", bytes.size() - start, " follow");

  const NpyHeader header = HeaderParser(op, path, label, text.substr(start, length)).parse();
  const char order = header.descr.empty() ? '\0' : header.descr[0];
  const auto type =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const NpyType& t) { return header.descr == concat(order, t.code); });
  if (std::string_view("<>|=").find(order) == std::string_view::npos || type == std::end(kTypes))
    fail("dtype '", header.descr, "' is not read; convert it to float32, float64, int32, int64, uint8 or bool in NumPy");
  const auto expected = detail::checked_nbytes(header.shape, type->size);
  if (!expected) fail("npy shape ", header.shape, " has more elements than memory can hold");
  const auto payload = bytes.subspan(start + length);
  if (static_cast<std::int64_t>(payload.size()) != *expected)
    fail("has ", payload.size(), " bytes of values, expected ", *expected, " for shape ", header.shape, " of '", header.descr, "'");
  return decode_values(*type, order, header, payload);
}

std::string npy_header(const char* op, const Tensor& tensor) {
  const char order = size_of(tensor.dtype()) == 1 ? '|' : std::endian::native == std::endian::little ? '<' : '>';
  std::string shape;
  for (const std::int64_t n : tensor.sizes()) shape += concat(n, ", ");
  if (tensor.dim() > 1) shape.resize(shape.size() - 2);
  if (tensor.dim() == 1) shape.resize(shape.size() - 1);
  std::string dict = concat("{'descr': '", order, npy_code(op, tensor.dtype()), "', 'fortran_order': False, 'shape': (", shape, "), }");
  constexpr std::size_t prefix = 10, alignment = 64;
  dict.resize((prefix + dict.size() + 1 + alignment - 1) / alignment * alignment - prefix - 1, ' ');
  dict += '\n';
  std::string header(kMagic);
  header += {'\1', '\0', static_cast<char>(dict.size() & 0xff), static_cast<char>(dict.size() >> 8)};
  return header + dict;
}

Tensor host_copy(const Tensor& tensor) { return tensor.detach().to(cpu_device()).contiguous(); }

Tensor load_npy(const std::string& path) {
  const detail::Bytes bytes = detail::read_file("load_npy", path);
  return decode_npy("load_npy", path, "", bytes);
}

void save_npy(const std::string& path, const Tensor& tensor) {
  const Tensor host = host_copy(tensor);
  const std::string header = npy_header("save_npy", host);
  detail::AtomicFile file("save_npy", path);
  file.write(header);
  file.write(host.raw().data, static_cast<std::size_t>(host.nbytes()));
  file.commit();
}

}  // namespace tensorlite::io
