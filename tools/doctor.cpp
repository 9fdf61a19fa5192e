// tensorlite-doctor: what to run when the GPU is not used. One screen of facts, then a verdict with one sentence per problem.
// Exit code 0: a GPU is usable, or none is present; 1: one is present but cannot be used, or not fully. Creates no context.
#include <tensorlite/device.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace {

namespace tl = tensorlite;
using Details = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kVariables[] = {"TENSORLITE_CUDA_PLUGIN",    "CUDA_VISIBLE_DEVICES", "TENSORLITE_FORCE_GPU_ALLOW_GROWTH",
                                      "TF_FORCE_GPU_ALLOW_GROWTH", "TENSORLITE_CPU_ISA",   "TENSORLITE_LOG",
                                      "TENSORLITE_LOG_PLACEMENT",  "OMP_NUM_THREADS",      "LD_LIBRARY_PATH"};

struct Report {
  Details build, cpu;
  int threads = 0;
  std::vector<tl::Finding> findings;
  std::vector<std::pair<tl::PhysicalDevice, Details>> gpus;
  Details environment;
  std::vector<std::string> verdict;
  int exit_code = 0;
};

std::string value_of(const Details& details, const std::string& key) {
  for (const auto& [name, value] : details)
    if (name == key) return value;
  return "";
}

bool is_gpu(const tl::Finding& finding) { return finding.layer.starts_with("GPU "); }

/// Whether the machine has a GPU at all, usable or not.
bool gpu_is_present(const Report& report) {
  return std::any_of(report.findings.begin(), report.findings.end(), [](const tl::Finding& finding) {
    if (finding.layer == "hardware") return finding.found != "no NVIDIA GPU";
    if (finding.layer == "driver") return !finding.ok && !finding.found.empty() && finding.found != "none";
    return is_gpu(finding);
  });
}

void judge(Report& report) {
  if (!gpu_is_present(report)) {
    report.verdict.push_back("No NVIDIA GPU is present: everything runs on the CPU.");
    return;
  }
  for (const tl::Finding& finding : report.findings) {
    if (finding.ok) continue;
    // A GPU that is skipped beside a usable one takes nothing away from the program.
    if (!is_gpu(finding) || report.gpus.empty()) report.exit_code = 1;
    report.verdict.push_back(finding.layer + (finding.path.empty() ? "" : " (" + finding.path + ")") + ": " + finding.problem +
                             (finding.remedy.empty() ? "" : " " + finding.remedy));
  }
  if (report.gpus.empty()) report.exit_code = 1;
  const std::string first = report.gpus.empty() ? "" : value_of(report.gpus[0].second, "device_name");
  if (report.gpus.empty()) report.verdict.insert(report.verdict.begin(), "A GPU is present but cannot be used:");
  else if (report.exit_code) report.verdict.insert(report.verdict.begin(), "GPU:0 (" + first + ") can be used, but not fully:");
  else report.verdict.insert(report.verdict.begin(), "GPU:0 (" + first + ") is usable.");
}

Report examine() {
  Report report;
  report.build = tl::config::get_build_details();
  report.cpu = tl::config::get_device_details(tl::config::list_physical_devices("CPU")[0]);
  report.threads = tl::config::get_num_threads();
  for (const tl::PhysicalDevice& gpu : tl::config::list_physical_devices("GPU"))
    report.gpus.emplace_back(gpu, tl::config::get_device_details(gpu));
  report.findings = tl::config::diagnose_gpus();
  for (const char* name : kVariables)
    if (const char* value = std::getenv(name)) report.environment.emplace_back(name, value);
  judge(report);
  return report;
}

// -------------------------------------------------------------------------------------------------------------------------- output

std::string mib(const std::string& bytes) { return std::to_string(std::strtoll(bytes.c_str(), nullptr, 10) >> 20) + " MiB"; }

void line(const std::string& label, const std::string& text) { std::printf("%-14s %s\n", label.c_str(), text.c_str()); }

std::string text_of(const tl::Finding& finding) {
  std::string text = finding.ok ? "ok" : finding.problem;
  const auto add = [&](const char* label, const std::string& value) {
    if (!value.empty()) text += std::string(text.ends_with('.') ? " " : ", ") + label + value;
  };
  add("found ", finding.found);
  add("built for ", finding.built_for);
  add("", finding.path);
  return text;
}

void print_text(const Report& report) {
  line("tensorlite",
       value_of(report.build, "version") + ", " + value_of(report.build, "library") + ", compiler " + value_of(report.build, "compiler"));
  line("CPU", value_of(report.cpu, "device_name") + ", " + mib(value_of(report.cpu, "total_memory")));
  line("", "instruction set " + value_of(report.cpu, "instruction_set") + " of " + value_of(report.build, "instruction_sets") + "; " +
               value_of(report.cpu, "cores_usable") + " cores usable, " + std::to_string(report.threads) + " threads per op");
  for (const tl::Finding& finding : report.findings) line(finding.layer, text_of(finding));
  int index = 0;
  for (const auto& [device, d] : report.gpus) {
    line("GPU:" + std::to_string(index++), value_of(d, "device_name") + ", compute capability " + value_of(d, "compute_capability") + ", " +
                                               mib(value_of(d, "total_memory")) + ", " + value_of(d, "multiprocessors") +
                                               " multiprocessors");
    line("", value_of(d, "uuid") + ", PCI " + value_of(d, "pci_bus_id") + ", index in nvidia-smi " + value_of(d, "nvidia_smi_index") +
                 ", driver " + value_of(d, "driver_version") + ", runtime " + value_of(d, "runtime_version"));
  }
  for (const auto& [name, value] : report.environment) line("environment", name + "=" + value);
  std::printf("\n");
  for (std::size_t i = 0; i < report.verdict.size(); ++i) std::printf("%s%s\n", i ? "- " : "", report.verdict[i].c_str());
}

nlohmann::ordered_json json_of(const Details& details) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const auto& [key, value] : details) object[key] = value;
  return object;
}

void print_json(const Report& report) {
  nlohmann::ordered_json root;
  root["build"] = json_of(report.build);
  root["cpu"] = json_of(report.cpu);
  root["cpu"]["threads"] = report.threads;
  root["findings"] = nlohmann::ordered_json::array();
  for (const tl::Finding& f : report.findings)
    root["findings"].push_back({{"layer", f.layer},
                                {"ok", f.ok},
                                {"built_for", f.built_for},
                                {"found", f.found},
                                {"path", f.path},
                                {"problem", f.problem},
                                {"remedy", f.remedy}});
  root["gpus"] = nlohmann::ordered_json::array();
  for (const auto& [device, details] : report.gpus) {
    root["gpus"].push_back(json_of(details));
    root["gpus"].back()["physical_device"] = device.name;
  }
  root["environment"] = json_of(report.environment);
  root["verdict"] = report.verdict;
  root["exit_code"] = report.exit_code;
  // Driver texts need not be UTF-8.
  std::printf("%s\n", root.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Says which devices tensorlite can use here, and why a GPU is not used. Exit code 1: a GPU is present but cannot be (fully) used."};
  bool json = false;
  app.add_flag("--json", json, "Print JSON");
  CLI11_PARSE(app, argc, argv);
  try {
    const Report report = examine();
    if (json) print_json(report);
    else print_text(report);
    return report.exit_code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tensorlite-doctor: %s\n", error.what());
    return 2;
  }
}
