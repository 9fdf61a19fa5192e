// A shared library that is looked for when it is needed, so that the backend loads without it.
#pragma once

#include "platform.hpp"

#include <initializer_list>

namespace tensorlite::cuda {

/// Opened once, never closed: its threads and handlers may outlive every object of ours.
class Library {
 public:
  /// Tries the names in turn.
  explicit Library(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      std::string reason;
      handle_ = platform::open_library(name, reason);
      if (handle_) {
        problem_.clear();
        return;
      }
      if (problem_.empty()) problem_ = reason;
    }
  }
  explicit operator bool() const { return handle_ != nullptr; }
  /// Null when the library or the symbol is missing; the first missing one is kept for problem().
  template <class Function> void resolve(Function*& function, const char* name) {
    function = handle_ ? reinterpret_cast<Function*>(platform::find_symbol(handle_, name)) : nullptr;
    if (!function && problem_.empty()) problem_ = path() + " has no symbol " + name;
  }
  bool complete() const { return handle_ != nullptr && problem_.empty(); }
  /// Why it could not be opened or which symbol it lacks.
  const std::string& problem() const { return problem_; }
  /// Absolute path, links resolved.
  std::string path() const { return handle_ ? platform::library_path(handle_) : std::string(); }

 private:
  void* handle_ = nullptr;
  std::string problem_;
};

}  // namespace tensorlite::cuda
