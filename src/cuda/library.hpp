// A shared library that is looked for when it is needed, so that the backend loads without it.
#pragma once

#include <initializer_list>
#include <string>

namespace tensorlite::cuda {

/// Opened once, never closed: its threads and handlers may outlive every object of ours.
class Library {
 public:
  /// Tries the names in turn (null ends the list).
  explicit Library(std::initializer_list<const char*> names);
  explicit operator bool() const { return handle_ != nullptr; }
  /// Null when the library or the symbol is missing; the first missing one is kept for problem().
  void* symbol(const char* name);
  template <class Function> void resolve(Function*& function, const char* name) { function = reinterpret_cast<Function*>(symbol(name)); }
  bool complete() const { return handle_ != nullptr && problem_.empty(); }
  /// Why it could not be opened or which symbol it lacks.
  const std::string& problem() const { return problem_; }
  /// Absolute path, links resolved.
  std::string path() const;

 private:
  void* handle_ = nullptr;
  std::string problem_;
};

}  // namespace tensorlite::cuda
