// Numbers from CSV text. One pass over the file in memory; a field of plain digits, which is all that Kaggle's files hold, takes a short
// loop; everything else goes through slow_field.
#include <tensorlite/data.hpp>

#include "io_file.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace tensorlite::data {

namespace {

using detail::concat;

std::string_view trimmed(std::string_view field) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!field.empty() && blank(field.front())) field.remove_prefix(1);
  while (!field.empty() && blank(field.back())) field.remove_suffix(1);
  if (field.size() >= 2 && field.front() == '"' && field.back() == '"') return field.substr(1, field.size() - 2);
  return field;
}

std::optional<float> parse_number(std::string_view field) {
  if (!field.empty() && field.front() == '+') field.remove_prefix(1);
  double value = 0;  // wider than float, so that 1e-60 is a small number and no error
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size()) return std::nullopt;
  return static_cast<float>(value);
}

std::string shown(std::string_view field) { return concat("'", field.substr(0, 40), field.size() > 40 ? "..." : "", "'"); }

/// Walks over the text of one file and knows where it is, for messages.
class CsvReader {
 public:
  CsvReader(const char* op, const std::string& path) : op_(op), path_(path), bytes_(detail::read_file_unpacked(op, path)) {
    if (bytes_.empty()) throw IoError(op, path, "is empty (0 bytes), expected comma-separated numbers");
    if (const auto guess = detail::guess_content(bytes_); !guess.empty())
      throw IoError(op, path, concat("not CSV (starts with ", detail::first_bytes(bytes_, 2), ")", guess));
    bytes_.push_back('\n');  // so that scanning needs no end test
    at_ = reinterpret_cast<const char*>(bytes_.data());
    end_ = at_ + bytes_.size();
    if (std::string_view(at_, bytes_.size()).substr(0, 3) == "\xef\xbb\xbf") at_ += 3;
    read_header();
  }

  const std::vector<std::string>& header() const { return header_; }
  std::int64_t columns() const { return columns_; }
  std::int64_t row() const { return row_; }
  /// An upper bound of the values to come (unless fields are empty): a digit and a separator each.
  std::size_t max_values() const { return static_cast<std::size_t>(end_ - at_) / 2; }

  /// Reads the next row through store(column, value), store being called in order; false at the end of the file.
  template <class Store> bool next_row(EmptyField empty, Store&& store) {
    if (!skip_blank_lines()) return false;
    row_start_ = at_;
    for (std::int64_t column = 0;; ++column) {
      const char* p = at_;
      std::uint32_t number = 0;
      while (static_cast<unsigned char>(*p - '0') < 10) number = number * 10 + static_cast<std::uint32_t>(*p++ - '0');
      if (p != at_ && p - at_ <= 7 && (*p == ',' || *p == '\n')) {
        if (column >= columns_) fail_length();
        store(column, static_cast<float>(number));
      } else {
        p = slow_field(column, empty, store);
      }
      at_ = p + 1;
      if (*p == '\n') {
        if (column + 1 != columns_) fail_length();
        return true;
      }
    }
  }

  [[noreturn]] void fail(std::int64_t column, const std::string& text) const {
    const auto index = static_cast<std::size_t>(column);
    const std::string name = index < header_.size() ? concat(" ('", header_[index], "')") : "";
    throw IoError(op_, path_, concat("row ", row_, ", column ", column + 1, name, " ", text));
  }

 private:
  /// row_ is the line that at_ is about to read.
  bool skip_blank_lines() {
    ++row_;
    for (; at_ != end_; ++row_) {
      const char* p = at_;
      while (*p == '\r' || *p == ' ') ++p;
      if (*p != '\n') return true;
      at_ = p + 1;
    }
    return false;
  }

  template <class Store> const char* slow_field(std::int64_t column, EmptyField empty, Store& store) {
    const char* p = at_;
    while (*p != ',' && *p != '\n') ++p;
    const auto field = trimmed({at_, static_cast<std::size_t>(p - at_)});
    if (column >= columns_) fail_length();
    if (field.empty()) {
      if (empty == EmptyField::error) fail(column, "is empty");
      store(column, std::numeric_limits<float>::quiet_NaN());
    } else if (const auto value = parse_number(field)) {
      store(column, *value);
    } else {
      fail(column, concat("is ", shown(field), ", expected a number"));
    }
    return p;
  }

  [[noreturn]] void fail_length() const {
    const auto fields = 1 + std::count(row_start_, std::find(row_start_, end_, '\n'), ',');
    throw IoError(op_, path_, concat("row ", row_, " has ", fields, " fields, expected ", columns_, ", as in the first row"));
  }

  void read_header() {
    if (!skip_blank_lines()) throw IoError(op_, path_, "holds only blank lines, expected comma-separated numbers");
    const char* line_end = std::find(at_, end_, '\n');
    std::vector<std::string> names;
    bool any_number = false;
    for (const char* p = at_;;) {
      const char* stop = std::find(p, line_end, ',');
      const auto field = trimmed({p, static_cast<std::size_t>(stop - p)});
      any_number = any_number || parse_number(field).has_value();
      names.emplace_back(field);
      if (stop == line_end) break;
      p = stop + 1;
    }
    columns_ = static_cast<std::int64_t>(names.size());
    if (any_number) {
      --row_;
      return;
    }
    header_ = std::move(names);
    at_ = line_end + 1;
  }

  const char* op_;
  const std::string& path_;
  detail::Bytes bytes_;
  const char* at_ = nullptr;
  const char* end_ = nullptr;
  const char* row_start_ = nullptr;
  std::vector<std::string> header_;
  std::int64_t columns_ = 0, row_ = 0;
};

constexpr std::int64_t kSide = 28, kPixels = kSide * kSide;

void check_digit_columns(const CsvReader& reader, const std::string& path) {
  if (reader.columns() != kPixels && reader.columns() != kPixels + 1)
    throw IoError("read_kaggle_digits", path,
                  concat("has ", reader.columns(), " columns, expected ", kPixels + 1, " (a label and ", kPixels, " pixels) or ", kPixels,
                         " (pixels only)"));
  const bool labelled = reader.columns() > kPixels;
  if (labelled && !reader.header().empty() && reader.header()[0] != "label")
    throw IoError("read_kaggle_digits", path, concat("its first column is ", shown(reader.header()[0]), ", expected 'label'"));
}

}  // namespace

CsvTable read_csv(const std::string& path, EmptyField empty) {
  CsvReader reader("read_csv", path);
  CsvTable table;
  table.columns = reader.columns();
  table.values.reserve(reader.max_values());
  while (reader.next_row(empty, [&](std::int64_t, float value) { table.values.push_back(value); })) ++table.rows;
  table.header = reader.header();
  return table;
}

ImageSet read_kaggle_digits(const std::string& path) {
  CsvReader reader("read_kaggle_digits", path);
  check_digit_columns(reader, path);
  const bool labelled = reader.columns() > kPixels;
  ImageSet set{0, kSide, kSide, {}, {}};
  set.pixels.reserve(reader.max_values());
  const auto store = [&](std::int64_t column, float value) {
    const auto byte = static_cast<std::uint8_t>(value >= 0 && value <= 255 ? value : 0);
    if (labelled && column == 0) {
      if (static_cast<float>(byte) != value || byte > 9) reader.fail(column, concat("is ", double{value}, ", expected a label 0..9"));
      set.labels.push_back(byte);
    } else {
      if (static_cast<float>(byte) != value) reader.fail(column, concat("is ", double{value}, ", expected a pixel 0..255"));
      set.pixels.push_back(byte);
    }
  };
  while (reader.next_row(EmptyField::error, store)) ++set.count;
  if (set.count == 0) throw IoError("read_kaggle_digits", path, "has a header but no rows");
  return set;
}

}  // namespace tensorlite::data
