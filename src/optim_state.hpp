// State dictionaries of optimizers and schedulers: numbers as 0-d tensors, and a reader that collects what does not fit.
#pragma once

#include <tensorlite/optim/optimizer.hpp>

#include <set>

namespace tensorlite::optim {

inline Tensor state_number(double value) { return scalar(value, {.dtype = kFloat64, .device = cpu_device()}); }
inline Tensor state_number(std::int64_t value) { return scalar(value, {.dtype = kInt64, .device = cpu_device()}); }

/// Takes entries out of a dict and remembers what was wrong with them.
class StateReader {
 public:
  StateReader(const char* name, const StateDict& dict) : name_(name), dict_(dict) {}
  bool has(const std::string& key) const { return dict_.contains(key); }
  /// Undefined when it is missing or has another shape.
  Tensor take(const std::string& key, const Dims& sizes) {
    used_.insert(key);
    const auto entry = dict_.find(key);
    if (entry == dict_.end()) complain("'" + key + "' is missing");
    else if (entry->second.sizes() != sizes)
      complain(detail::concat("'", key, "' has shape ", entry->second.sizes(), ", expected ", sizes));
    else return entry->second;
    return {};
  }
  /// `into` keeps its value when the number is missing.
  template <class T> void take_number(const std::string& key, T& into) {
    if (const Tensor t = take(key, {}); t.defined()) into = t.item<T>();
  }
  /// Throws ValueError when anything was wrong or is left over.
  void finish() {
    for (const auto& entry : dict_)
      if (!used_.contains(entry.first)) complain("'" + entry.first + "' is unexpected");
    TL_CHECK(problems_.empty(), ValueError, name_, "the state does not fit: ", problems_);
  }

 private:
  void complain(const std::string& text) { problems_ += (problems_.empty() ? "" : "; ") + text; }

  const char* name_;
  const StateDict& dict_;
  std::set<std::string> used_;
  std::string problems_;
};

}  // namespace tensorlite::optim
