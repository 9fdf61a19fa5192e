// The one parser of device names, and the names it reads back.
#include <tensorlite/device.hpp>

#include <cctype>

namespace tensorlite {

namespace {

[[noreturn]] void reject(std::string_view text, const std::string& reason) {
  std::string message =
      detail::concat("'", text, "' is malformed: ", reason, "; write for example \"/CPU:0\", \"GPU:1\" or \"/device:GPU:0\"");
  // A zero byte would end what() early.
  for (char& c : message)
    if (std::iscntrl(static_cast<unsigned char>(c))) c = '?';
  throw ValueError("device name", message);
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// A run of letters, digits and underscores.
std::string_view take_word(std::string_view& text) {
  std::size_t n = 0;
  while (n < text.size() && (std::isalnum(static_cast<unsigned char>(text[n])) || text[n] == '_')) ++n;
  const std::string_view word = text.substr(0, n);
  text.remove_prefix(n);
  return word;
}

int take_index(std::string_view whole, std::string_view& text, std::string_view what) {
  if (text.starts_with('-')) reject(whole, detail::concat("the ", what, " index is negative"));
  std::int64_t value = 0;
  std::size_t n = 0;
  for (; n < text.size() && text[n] >= '0' && text[n] <= '9'; ++n) {
    value = value * 10 + (text[n] - '0');
    if (value > std::numeric_limits<int>::max()) reject(whole, detail::concat("the ", what, " index overflows"));
  }
  if (n == 0) reject(whole, detail::concat("the ", what, " index is not a number"));
  text.remove_prefix(n);
  return static_cast<int>(value);
}

class Parser {
 public:
  explicit Parser(std::string_view text) : whole_(text), rest_(text) {}

  DeviceSpec parse() {
    if (whole_.empty()) return spec_;
    take_prefix(rest_, "/");
    do part();
    while (take_prefix(rest_, "/"));
    if (!rest_.empty()) reject(whole_, detail::concat("'", rest_, "' is left over"));
    return spec_;
  }

 private:
  void once(bool& seen, std::string_view what) {
    if (seen) reject(whole_, detail::concat("two ", what, "s"));
    seen = true;
  }
  void part() {
    if (take_prefix(rest_, "job:")) return job();
    if (take_prefix(rest_, "replica:")) return only_zero(replica_, "replica");
    if (take_prefix(rest_, "task:")) return only_zero(task_, "task");
    take_prefix(rest_, "device:");
    type();
  }
  void job() {
    once(job_, "job");
    const std::string_view name = take_word(rest_);
    if (name != "localhost") reject(whole_, detail::concat("job '", name, "' is not this process; only localhost is"));
  }
  void only_zero(bool& seen, std::string_view what) {
    once(seen, what);
    if (const int index = take_index(whole_, rest_, what))
      reject(whole_, detail::concat(what, " ", index, " is not this process; only ", what, " 0 is"));
  }
  void type() {
    std::string name(take_word(rest_));
    for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    if (name.empty()) reject(whole_, "a part is empty");
    if (name != "CPU" && name != "GPU")
      reject(whole_, detail::concat("'", name, "' is neither a keyword nor a device type; the types are CPU and GPU"));
    once(type_, "device type");
    spec_.type = name == "CPU" ? DeviceType::cpu : DeviceType::gpu;
    if (!take_prefix(rest_, ":")) spec_.index = 0;
    else if (take_prefix(rest_, "*")) spec_.any_index = true;
    else spec_.index = take_index(whole_, rest_, "device");
  }

  std::string_view whole_, rest_;
  DeviceSpec spec_;
  bool job_ = false, replica_ = false, task_ = false, type_ = false;
};

}  // namespace

DeviceSpec DeviceSpec::parse(std::string_view text) { return Parser(text).parse(); }

DeviceSpec DeviceSpec::merged_over(const DeviceSpec& outer) const {
  if (!type) return outer;
  return *this;
}

std::string canonical_name(Device device) { return detail::concat("/job:localhost/replica:0/task:0/device:", short_name(device)); }
std::string short_name(Device device) { return detail::concat(device); }

}  // namespace tensorlite
