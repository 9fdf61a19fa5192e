// Out-of-line L2: tensors as text, in NumPy's style.
#include <tensorlite/autograd.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ostream>

namespace tensorlite {
namespace {

constexpr std::int64_t kSummarizeAbove = 1000;  // elements
constexpr std::int64_t kEdgeItems = 3;
constexpr std::size_t kLineWidth = 75;
constexpr int kPrecision = 8;

/// A number as text, split so that a column can be aligned at its point: "-12." and "5", or "nan" and "".
struct Text {
  std::string left, right;
};

/// Shortest digits that read back to the same value, at most kPrecision after the point.
template <class T> std::string digits(T value, std::chars_format format) {
  char buffer[400];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, format).ptr;
  std::string text(buffer, end);
  const std::size_t point = text.find('.'), exponent = text.find('e');
  const std::size_t fraction_end = exponent == std::string::npos ? text.size() : exponent;
  if (point == std::string::npos || fraction_end - point - 1 <= kPrecision) return text;
  text.assign(buffer, std::to_chars(buffer, buffer + sizeof buffer, value, format, kPrecision).ptr);
  const std::size_t mantissa_end = std::min(text.find('e'), text.size());
  std::size_t keep = mantissa_end;
  while (keep > 0 && text[keep - 1] == '0') --keep;
  return text.erase(keep, mantissa_end - keep);
}

template <class T> Text format_real(T value, bool scientific) {
  if (std::isnan(value)) return {"nan", ""};
  if (std::isinf(value)) return {value < 0 ? "-inf" : "inf", ""};
  std::string text = digits(value, scientific ? std::chars_format::scientific : std::chars_format::fixed);
  if (text.find('.') == std::string::npos) text.insert(std::min(text.find('e'), text.size()), ".");
  const std::size_t point = text.find('.') + 1;
  return {text.substr(0, point), text.substr(point)};
}

/// NumPy's rule: an exponent when the values span too much for columns.
template <class T> bool needs_exponent(const std::vector<T>& values) {
  double largest = 0, smallest = std::numeric_limits<double>::infinity();
  for (T v : values) {
    const double size = std::abs(static_cast<double>(v));
    if (size == 0 || !std::isfinite(size)) continue;
    largest = std::max(largest, size);
    smallest = std::min(smallest, size);
  }
  return largest != 0 && (largest >= 1e8 || smallest < 1e-4 || largest / smallest > 1000);
}

/// The elements that will be shown, aligned.
std::vector<std::string> align(const std::vector<Text>& texts) {
  std::size_t left = 0, right = 0;
  for (const Text& t : texts) {
    // "nan" and "inf" have no point: they end where the others' points stand.
    left = std::max(left, t.left.size());
    right = std::max(right, t.right.size());
  }
  std::vector<std::string> out;
  for (const Text& t : texts) {
    const bool word = t.right.empty() && !t.left.ends_with('.');
    if (word) out.push_back(std::string(left + right - std::min(left + right, t.left.size()), ' ') + t.left);
    else out.push_back(std::string(left - t.left.size(), ' ') + t.left + t.right + std::string(right - t.right.size(), ' '));
  }
  return out;
}

/// Mantissas and exponents as long as the longest, as NumPy pads them: 1.00e-05 beside 1.25e+10.
void pad_scientific(std::vector<Text>& texts) {
  std::size_t mantissa = 0, exponent = 0;
  for (const Text& t : texts) {
    const std::size_t e = t.right.find('e');
    if (e == std::string::npos) continue;  // nan, inf
    mantissa = std::max(mantissa, e);
    exponent = std::max(exponent, t.right.size() - e);
  }
  for (Text& t : texts) {
    const std::size_t e = t.right.find('e');
    if (e == std::string::npos) continue;
    t.right.insert(e + 2, exponent - (t.right.size() - e), '0');
    t.right.insert(e, mantissa - e, '0');
  }
}

/// The float32 nearest to the shortest decimal that reads back to this 16-bit value: what is printed of it.
template <class Half> float shortest(float value) {
  char text[40];
  for (int digits = 1; digits <= 8 && std::isfinite(value); ++digits) {
    std::snprintf(text, sizeof text, "%.*g", digits, static_cast<double>(value));
    const float candidate = std::strtof(text, nullptr);
    if (Half(candidate).bits == Half(value).bits) return candidate;
  }
  return value;
}
float shortest_of(DType dtype, float value) {
  return dtype == kFloat16 ? shortest<float16>(value) : dtype == kBFloat16 ? shortest<bfloat16>(value) : value;
}

template <class T> std::vector<std::string> format_elements(const Tensor& shown, DType dtype) {
  std::vector<T> values = shown.to_vector<T>();
  std::vector<Text> texts;
  if constexpr (std::is_floating_point_v<T>) {
    if (is_half(dtype))
      for (T& v : values) v = static_cast<T>(shortest_of(dtype, static_cast<float>(v)));
    const bool scientific = needs_exponent(values);
    for (T v : values) texts.push_back(format_real(v, scientific));
    if (scientific) pad_scientific(texts);
  } else {
    for (T v : values) texts.push_back({std::to_string(v), ""});
  }
  return align(texts);
}

std::vector<std::string> format_bools(const Tensor& shown) {
  std::vector<Text> texts;
  for (std::uint8_t v : shown.to(kUInt8).to_vector<std::uint8_t>()) texts.push_back({v ? "True" : "False", ""});
  return align(texts);
}

/// Without the middle of every long axis when there are too many elements: what is left is all that is printed.
Tensor edges_of(const Tensor& x, bool summarize) {
  Tensor out = x.detach();
  if (!summarize) return out;
  for (int axis = 0; axis < out.dim(); ++axis) {
    const std::int64_t n = out.sizes()[axis];
    if (n <= 2 * kEdgeItems) continue;
    Dims sizes = out.sizes();
    sizes[axis] = 2 * kEdgeItems;
    Tensor cut = empty(sizes, {.dtype = out.dtype(), .device = out.device()});
    for (std::int64_t i = 0; i < 2; ++i) {
      Dims half = sizes;
      half[axis] = kEdgeItems;
      detail::make_view(cut, half, cut.strides(), i * kEdgeItems * cut.strides()[axis])
          .copy_(detail::make_view(out, half, out.strides(), i * (n - kEdgeItems) * out.strides()[axis]));
    }
    out = cut;
  }
  return out;
}

class Printer {
 public:
  Printer(const Tensor& x, bool summarize) : sizes_(x.sizes()), summarize_(summarize) {
    const Tensor shown = edges_of(x, summarize);
    switch (x.dtype()) {
      case DType::float32: elements_ = format_elements<float>(shown, x.dtype()); break;
      case DType::float16:
      case DType::bfloat16: elements_ = format_elements<float>(shown.to(kFloat32), x.dtype()); break;
      case DType::float64: elements_ = format_elements<double>(shown, x.dtype()); break;
      case DType::boolean: elements_ = format_bools(shown); break;
      default: elements_ = format_elements<std::int64_t>(shown.to(kInt64), x.dtype());
    }
  }

  std::string print() { return sizes_.product() == 0 ? "[]" : print_axis(0); }

 private:
  bool cut(int axis) const { return summarize_ && sizes_[axis] > 2 * kEdgeItems; }
  std::int64_t shown(int axis) const { return cut(axis) ? 2 * kEdgeItems : sizes_[axis]; }

  std::string print_axis(int axis) {
    const std::string indent(static_cast<std::size_t>(axis) + 1, ' ');
    if (axis + 1 == sizes_.size()) return print_row(indent);
    const std::string between(static_cast<std::size_t>(sizes_.size() - axis - 1), '\n');
    std::string out = "[";
    for (std::int64_t i = 0; i < shown(axis); ++i) {
      if (i > 0) out += between + indent;
      if (cut(axis) && i == kEdgeItems) out += "..." + between + indent;
      out += print_axis(axis + 1);
    }
    return out + "]";
  }

  std::string print_row(const std::string& indent) {
    const int axis = sizes_.size() - 1;
    std::string out = "[";
    std::size_t column = indent.size();
    for (std::int64_t i = 0; i < shown(axis); ++i) {
      if (cut(axis) && i == kEdgeItems) {
        out += " ...";
        column += 4;
      }
      const std::string& element = elements_[next_++];
      if (i > 0 && column + 1 + element.size() > kLineWidth) {
        out += "\n" + indent;
        column = indent.size();
      } else if (i > 0) {
        out += ' ';
        ++column;
      }
      out += element;
      column += element.size();
    }
    return out + "]";
  }

  Dims sizes_;
  bool summarize_;
  std::vector<std::string> elements_;
  std::size_t next_ = 0;
};

/// A lone number as Python prints it: 3.0, 1e-28.
std::string print_scalar(const Tensor& x) {
  if (x.dtype() == kBool) return x.item<bool>() ? "True" : "False";
  if (!is_floating(x.dtype())) return std::to_string(x.item<std::int64_t>());
  double value = x.item<double>();
  if (is_half(x.dtype())) value = shortest_of(x.dtype(), static_cast<float>(value));
  if (!std::isfinite(value)) return format_real(value, false).left;
  const bool scientific = value != 0 && (std::abs(value) < 1e-4 || std::abs(value) >= 1e16);
  const auto format = scientific ? std::chars_format::scientific : std::chars_format::fixed;
  std::string text = x.dtype() == kFloat64 ? digits(value, format) : digits(static_cast<float>(value), format);
  if (!scientific && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string shape_text(const Dims& sizes) {
  std::string out = "(";
  for (int i = 0; i < sizes.size(); ++i) out += (i ? ", " : "") + std::to_string(sizes[i]);
  return out + (sizes.size() == 1 ? ",)" : ")");
}

}  // namespace

std::string Tensor::to_string() const {
  if (!defined()) return "tl.Tensor(undefined)";
  NoGradGuard guard;
  const DeviceScope scope(device());
  std::string text = dim() == 0 ? print_scalar(*this) : Printer(*this, numel() > kSummarizeAbove).print();
  if (text.find('\n') != std::string::npos) text.insert(0, "\n");
  return "tl.Tensor(" + text + ", shape=" + shape_text(sizes()) + ", dtype=" + name_of(dtype()) + ")";
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return out << tensor.to_string(); }

}  // namespace tensorlite
