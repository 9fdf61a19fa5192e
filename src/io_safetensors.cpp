// safetensors: the header's length (8 bytes, little-endian), a JSON header, the data section. The header is checked as a whole, against
// the file's size, before a tensor is made.
#include "io_npy.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

namespace tensorlite::io {

namespace {

using detail::concat;
using nlohmann::json;

constexpr const char* kLoad = "load_safetensors";
constexpr const char* kSave = "save_safetensors";
constexpr std::uint64_t kMaxHeader = 100'000'000;  // the format's own limit
constexpr std::pair<DType, const char*> kNames[] = {{kFloat32, "F32"}, {kFloat64, "F64"}, {kFloat16, "F16"}, {kBFloat16, "BF16"},
                                                    {kInt32, "I32"},   {kInt64, "I64"},   {kUInt8, "U8"},    {kBool, "BOOL"}};

/// One tensor of a header: bytes [begin, end) of the data section.
struct Entry {
  std::string name;
  DType dtype = kFloat32;
  Dims shape;
  std::uint64_t begin = 0, end = 0;
};

std::string range(const Entry& entry) { return concat("[", entry.begin, ", ", entry.end, ")"); }

/// Parses JSON and refuses what a plain parser forgives: a key that stands twice in one object.
json parse_strict(const std::string& path, const std::string& text) {
  std::vector<std::set<std::string>> open;
  const auto watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second)
      throw IoError(kLoad, path, concat("header has the key '", parsed.get<std::string>(), "' twice"));
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::exception& error) { throw IoError(kLoad, path, concat("header is not JSON: ", error.what())); }
}

class HeaderReader {
 public:
  HeaderReader(const std::string& path, std::uint64_t data_size) : path_(path), data_size_(data_size) {}

  Entry entry(const std::string& name, const json& fields) const {
    Entry entry;
    entry.name = name;
    if (!fields.is_object() || fields.size() != 3 || !fields.contains("dtype") || !fields.contains("shape") ||
        !fields.contains("data_offsets"))
      fail(name, "needs exactly the fields dtype, shape and data_offsets");
    entry.dtype = dtype(name, fields["dtype"]);
    const auto sizes = naturals(name, "shape", fields["shape"]);
    if (sizes.size() > kMaxDims) fail(name, concat("shape has ", sizes.size(), " dimensions, at most ", kMaxDims, " are read"));
    for (const std::uint64_t n : sizes) entry.shape.push_back(static_cast<std::int64_t>(n));
    const auto offsets = naturals(name, "data_offsets", fields["data_offsets"]);
    if (offsets.size() != 2 || offsets[0] > offsets[1]) fail(name, "data_offsets is not [begin, end]");
    entry.begin = offsets[0];
    entry.end = offsets[1];
    check_size(entry);
    return entry;
  }

  /// The ranges must lie side by side and fill the data section.
  void check_ranges(std::vector<Entry>& entries) const {
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
    std::uint64_t covered = 0;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const Entry& entry = entries[i];
      if (entry.begin < covered)
        fail(entry.name, concat("bytes ", range(entry), " overlap those of tensor '", entries[i - 1].name, "' ", range(entries[i - 1])));
      if (entry.begin > covered)
        fail(entry.name, concat("bytes ", range(entry), " leave a hole of ", entry.begin - covered, " before them"));
      covered = entry.end;
    }
    if (covered != data_size_) throw IoError(kLoad, path_, concat("data section has ", data_size_, " bytes, the tensors cover ", covered));
  }

 private:
  [[noreturn]] void fail(const std::string& name, const std::string& what) const {
    throw IoError(kLoad, path_, concat("tensor '", name, "': ", what));
  }

  DType dtype(const std::string& name, const json& field) const {
    for (const auto& [dtype, text] : kNames)
      if (field == text) return dtype;
    fail(name,
         concat("dtype ", field.dump(-1, ' ', false, json::error_handler_t::replace), " is not one of F32 F64 F16 BF16 I32 I64 U8 BOOL"));
  }

  std::vector<std::uint64_t> naturals(const std::string& name, const char* key, const json& field) const {
    constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    std::vector<std::uint64_t> numbers;
    if (!field.is_array()) fail(name, concat(key, " is not an array"));
    for (const json& number : field) {
      if (!number.is_number_unsigned() || number.get<std::uint64_t>() > most)
        fail(name, concat(key, " holds something else than natural numbers"));
      numbers.push_back(number.get<std::uint64_t>());
    }
    return numbers;
  }

  void check_size(const Entry& entry) const {
    const auto bytes = detail::checked_nbytes(entry.shape, size_of(entry.dtype));
    if (!bytes) fail(entry.name, concat("shape ", entry.shape, " has more bytes than 2^63 - 1"));
    if (static_cast<std::uint64_t>(*bytes) != entry.end - entry.begin)
      fail(entry.name, concat("data_offsets ", range(entry), " hold ", entry.end - entry.begin, " bytes, but shape ", entry.shape, " of ",
                              entry.dtype, " needs ", *bytes));
    if (entry.end > data_size_)
      fail(entry.name, concat("data_offsets ", range(entry), " end after the data section of ", data_size_, " bytes"));
  }

  const std::string& path_;
  std::uint64_t data_size_;
};

std::map<std::string, std::string> read_metadata(const std::string& path, const json& field) {
  std::map<std::string, std::string> metadata;
  if (!field.is_object()) throw IoError(kLoad, path, "__metadata__ is not an object");
  for (const auto& [key, value] : field.items()) {
    if (!value.is_string()) throw IoError(kLoad, path, concat("__metadata__ '", key, "' is not a text"));
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

std::string read_header(detail::InputFile& file, const std::string& path) {
  if (file.size() < 8) throw IoError(kLoad, path, concat("has ", file.size(), " bytes, expected at least the 8 of a header length"));
  std::uint8_t prefix[8];
  file.read(prefix, sizeof prefix);
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | prefix[i];
  const auto rest = static_cast<std::uint64_t>(file.size() - 8);
  if (length > rest || length > kMaxHeader)
    throw IoError(kLoad, path,
                  concat("header length ", length, " is more than ", length > rest ? "the file's remaining " : "the limit of ",
                         length > rest ? rest : kMaxHeader, " bytes", detail::guess_content(prefix)));
  std::string text(length, '\0');
  file.read(text.data(), text.size());
  return text;
}

void read_values(detail::InputFile& file, Tensor& tensor) {
  auto* data = static_cast<std::uint8_t*>(tensor.raw().data);
  file.read(data, static_cast<std::size_t>(tensor.nbytes()));
  if (tensor.dtype() == kBool)
    for (std::int64_t i = 0; i < tensor.numel(); ++i) data[i] = data[i] != 0;
}

/// Larger elements first, so that each is aligned; then by name.
std::vector<std::pair<std::string, Tensor>> in_file_order(const NamedTensors& tensors) {
  std::vector<std::pair<std::string, Tensor>> order(tensors.begin(), tensors.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return size_of(a.second.dtype()) > size_of(b.second.dtype()); });
  return order;
}

std::string write_header(const std::vector<std::pair<std::string, Tensor>>& order, const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t offset = 0;
  for (const auto& [name, tensor] : order) {
    TL_CHECK(name != "__metadata__", ValueError, kSave, "a tensor cannot be named '__metadata__'");
    const auto* dtype = std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& pair) { return pair.first == tensor.dtype(); });
    header[name] = {{"dtype", dtype->second},
                    {"shape", std::vector<std::int64_t>(tensor.sizes().begin(), tensor.sizes().end())},
                    {"data_offsets", {offset, offset + tensor.nbytes()}}};
    offset += tensor.nbytes();
  }
  try {
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    return text;
  } catch (const json::exception&) { throw ValueError(kSave, "a tensor's name or the metadata is not UTF-8 text"); }
}

}  // namespace

Safetensors load_safetensors(const std::string& path) {
  detail::InputFile file(kLoad, path);
  const std::string text = read_header(file, path);
  const json header = parse_strict(path, text);
  if (!header.is_object()) throw IoError(kLoad, path, "header is not a JSON object");
  const HeaderReader reader(path, static_cast<std::uint64_t>(file.size()) - 8 - text.size());
  Safetensors content;
  std::vector<Entry> entries;
  for (const auto& [name, fields] : header.items()) {
    if (name == "__metadata__") content.metadata = read_metadata(path, fields);
    else entries.push_back(reader.entry(name, fields));
  }
  reader.check_ranges(entries);
  for (const Entry& entry : entries) {
    Tensor tensor = empty(entry.shape, {.dtype = entry.dtype, .device = cpu_device()});
    read_values(file, tensor);
    content.tensors[entry.name] = tensor;
  }
  return content;
}

void save_safetensors(const std::string& path, const Safetensors& content) {
  const auto order = in_file_order(content.tensors);
  const std::string header = write_header(order, content.metadata);
  detail::AtomicFile file(kSave, path);
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(header.size() >> (8 * i) & 0xff);
  file.write(length + header);
  for (const auto& [name, tensor] : order) {
    const Tensor host = host_copy(tensor);
    file.write(host.raw().data, static_cast<std::size_t>(host.nbytes()));
  }
  file.commit();
}

}  // namespace tensorlite::io
