#include "library.hpp"

#include <climits>
#include <cstdlib>

#include <dlfcn.h>
#include <link.h>

namespace tensorlite::cuda {

Library::Library(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    handle_ = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (handle_) {
      problem_.clear();
      return;
    }
    const char* text = dlerror();
    if (problem_.empty()) problem_ = text ? text : name;
  }
}

void* Library::symbol(const char* name) {
  void* found = handle_ ? dlsym(handle_, name) : nullptr;
  if (!found && problem_.empty()) problem_ = path() + " has no symbol " + name;
  return found;
}

std::string Library::path() const {
  link_map* map = nullptr;
  if (!handle_ || dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0 || !map) return {};
  char resolved[PATH_MAX];
  return realpath(map->l_name, resolved) ? resolved : map->l_name;
}

}  // namespace tensorlite::cuda
