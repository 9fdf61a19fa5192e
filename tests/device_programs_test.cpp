// tensorlite-doctor and device_tour, run as a person would.
#include "own_process.hpp"
#include "temp_folder.hpp"

#include <nlohmann/json.hpp>

namespace {

const std::string kExpected = TENSORLITE_SOURCE_DIR "/tests/expected/";

Environment faulty(const char* faults) { return simulated("1x256", {{"TENSORLITE_SIMULATED_FAULTS", faults}}); }

}  // namespace

#if defined(TENSORLITE_DEVICE_TOUR)
TEST_CASE("the device tour prints what is committed") {
  const ChildResult with_gpus = run_program(TENSORLITE_DEVICE_TOUR " --simulate", {});
  CHECK(with_gpus.status == 0);
  CHECK(with_gpus.output == file_bytes(kExpected + "device_tour_simulated.txt"));
  const ChildResult without = run_program(TENSORLITE_DEVICE_TOUR, without_gpu());
  CHECK(without.status == 0);
  CHECK(without.output == file_bytes(kExpected + "device_tour_cpu.txt"));
}
#endif

#if defined(TENSORLITE_DOCTOR)
TEST_CASE("the doctor on a machine that is well") {
  const ChildResult result = run_program(TENSORLITE_DOCTOR, simulated("2x256", {{"CUDA_VISIBLE_DEVICES", "0,1"}}));
  INFO(result.output);
  CHECK(result.status == 0);
  for (const char* part :
       {"tensorlite     " /* version */, "CPU            ", "cores usable", "driver         ok, found 13.0, built for 13.0",
        "GPU:1          Simulated GPU, compute capability 9.0, 256 MiB", "GPU-51a1a7ed-0000-0000-0000-000000000001, PCI 0000:02:00.0",
        "environment    CUDA_VISIBLE_DEVICES=0,1", "\nGPU:0 (Simulated GPU) is usable.\n"})
    CHECK(contains(result.output, part));
}

TEST_CASE("the doctor's verdict and exit code for each fault") {
  const std::pair<const char*, const char*> cases[] = {
      {"old_driver", "- driver: The driver serves CUDA 11.4, the runtime is 13.0. Update the driver.\n"},
      {"old_gpu=0",
       "- GPU 0: This GPU is not used: Simulated GPU, compute capability 3.5 is not among the compiled ones: 8.0, 9.0, 10.0. Build the "
       "plug-in for this GPU's "
       "capability.\n"},
      {"cudnn_mismatch", "- cuDNN graph (libcudnn_graph.so.9): It is of another version than cuDNN. Install the parts of one version.\n"},
  };
  for (const auto& [fault, sentence] : cases) {
    const ChildResult result = run_program(TENSORLITE_DOCTOR, faulty(fault));
    INFO(result.output);
    CHECK(result.status == 1);
    CHECK(contains(result.output, sentence));
  }
}

TEST_CASE("the doctor's JSON says the same") {
  const ChildResult result = run_program(TENSORLITE_DOCTOR " --json", faulty("cudnn_mismatch"));
  INFO(result.output);
  CHECK(result.status == 1);
  const auto root = nlohmann::json::parse(result.output);
  CHECK(root["exit_code"] == 1);
  CHECK(root["gpus"].size() == 1);
  CHECK(root["gpus"][0]["compute_capability"] == "9.0");
  CHECK(root["cpu"]["threads"] >= 1);
  CHECK(!root["build"]["library"].get<std::string>().empty());
  bool found = false;
  for (const auto& finding : root["findings"])
    found = found || (finding["layer"] == "cuDNN graph" && finding["ok"] == false && finding["found"] == "9.1.0");
  CHECK(found);
  CHECK(root["verdict"][1].get<std::string>().find("cuDNN graph") == 0);
}

TEST_CASE("the doctor without a plug-in shows where it was looked for") {
  const ChildResult result = run_program(TENSORLITE_DOCTOR, without_gpu());
  INFO(result.output);
  CHECK(contains(result.output, "plug-in        There is no such file. /nowhere/libtensorlite_cuda.so"));
  if (contains(result.output, "found no NVIDIA GPU")) {
    CHECK(result.status == 0);
    CHECK(contains(result.output, "No NVIDIA GPU is present: everything runs on the CPU.\n"));
  } else {
    CHECK(result.status == 1);
    CHECK(contains(result.output,
                   "A GPU is present but cannot be used:\n- plug-in (/nowhere/libtensorlite_cuda.so): There is no such file."));
  }
}
#endif
