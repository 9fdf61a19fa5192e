// Finds and loads the GPU plug-in, at the first question about a GPU, and keeps the reason of every failure.
#include "runtime_state.hpp"

#include "platform.hpp"

#include <cstdlib>
#include <filesystem>

namespace tensorlite::runtime {

namespace {

namespace fs = std::filesystem;

constexpr const char* kVariable = "TENSORLITE_CUDA_PLUGIN";

/// Where a plug-in may lie, in the order in which they are tried. A path that the user named is the only one: another build found
/// elsewhere would be a surprise.
std::vector<std::string> candidates() {
  if (const char* path = std::getenv(kVariable); path && *path) return {path};
  const std::string name = platform::library_file_name("tensorlite_cuda");
  std::vector<std::string> paths;
  if (const fs::path own = platform::own_path(); !own.empty()) {
    paths.push_back((own.parent_path() / name).string());
    paths.push_back((own.parent_path() / ".." / "lib" / name).lexically_normal().string());
  }
#if defined(TENSORLITE_INSTALL_LIBDIR)
  paths.push_back((fs::path(TENSORLITE_INSTALL_LIBDIR) / name).string());
#endif
  paths.push_back(name);
  return paths;
}

Finding failure(const std::string& path, std::string problem, std::string remedy) {
  return {.layer = "plug-in",
          .ok = false,
          .built_for = "",
          .found = "",
          .path = path,
          .problem = std::move(problem),
          .remedy = std::move(remedy)};
}

const Backend* load(const std::string& path, Finding& finding) {
  const bool by_path = path.find('/') != std::string::npos || path.find('\\') != std::string::npos;
  std::error_code ignored;
  if (by_path && !fs::exists(path, ignored)) {
    finding = failure(path, "There is no such file.", "");
    return nullptr;
  }
  std::string error;
  void* library = platform::open_library(path, error);
  if (!library) {
    finding = failure(path, detail::concat("It does not load: ", error, "."),
                      by_path ? "Install what the message names, or put its folder on the library path." : "");
    return nullptr;
  }
  const auto entry = reinterpret_cast<BackendEntry>(platform::find_symbol(library, kBackendEntry));
  if (!entry) {
    finding =
        failure(path, detail::concat("It has no function ", kBackendEntry, ", so it is not a tensorlite plug-in."), "Name another file.");
    return nullptr;
  }
  const char* why = nullptr;
  const Backend* backend = entry(&why);
  if (!backend) {
    finding = failure(path, why ? detail::concat("It cannot serve: ", why, ".") : "It cannot serve and does not say why.", "");
    return nullptr;
  }
  if (backend->abi_hash != kAbiHash) {
    finding = failure(path, "It was built for another tensorlite than this " TENSORLITE_VERSION ".",
                      "Install the plug-in and the library of one build.");
    return nullptr;
  }
  finding = {
      .layer = "plug-in", .ok = true, .built_for = TENSORLITE_VERSION, .found = backend->name, .path = path, .problem = "", .remedy = ""};
  return backend;
}

}  // namespace

const Backend* load_gpu_backend(std::vector<Finding>& findings) {
  for (const std::string& path : candidates()) {
    const Backend* backend = nullptr;
    Finding finding;
    try {
      backend = load(path, finding);
    } catch (const std::exception& error) { finding = failure(path, detail::concat("Its entry threw: ", error.what(), "."), ""); }
    findings.push_back(std::move(finding));
    if (backend) return backend;
  }
  return nullptr;
}

}  // namespace tensorlite::runtime
