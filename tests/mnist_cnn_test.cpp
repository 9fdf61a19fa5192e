// The trainer as its users meet it: the program itself, run on small parts of the bundled sample.
#include <tensorlite/base.hpp>

#include "catch.hpp"
#include "temp_folder.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>

using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

struct Result {
  int exit_code = -1;
  std::string out, error;
};

Result run(const TempFolder& folder, const std::string& arguments, const std::string& environment = "") {
  const std::string out = folder / "stdout", error = folder / "stderr";
  const int status = std::system((environment + " timeout 300 " TENSORLITE_MNIST_CNN " " + arguments + " >" + out + " 2>" + error).c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, file_bytes(out), file_bytes(error)};
}

/// Runs on the CPU with a data set of `limit` digits; REQUIREs success and returns the run of the JSON file.
json train(const TempFolder& folder, const std::string& arguments) {
  const auto result = run(folder, "--device cpu --json " + (folder / "figures.json") + " " + arguments);
  INFO(result.error);
  REQUIRE(result.exit_code == 0);
  return json::parse(file_bytes(folder / "figures.json"))["runs"];
}

/// All figures of all epochs but the time.
std::vector<double> figures(const json& runs) {
  std::vector<double> values;
  for (const auto& epoch : runs[0]["epochs"])
    for (const char* key : {"loss", "accuracy", "val_loss", "val_accuracy"}) values.push_back(epoch[key].get<double>());
  return values;
}

/// Stands in for a GPU where there is none.
// LeakSanitizer crashes in a process with memory that may not be read, as the simulated GPU's.
const std::string kSimulatedGpu =
    "ASAN_OPTIONS=detect_leaks=0 TENSORLITE_CUDA_PLUGIN=" TENSORLITE_SIMULATED_GPU_PLUGIN " TENSORLITE_SIMULATED_GPUS=1x2048";
const std::string kNoGpu = "TENSORLITE_CUDA_PLUGIN=/nowhere";

std::string kaggle_row(int digit, int shift) {
  std::string row;
  for (int i = 0; i < 784; ++i) row += "," + std::to_string(i / 28 == 2 * digit + shift ? 255 : 0);
  return row;
}

void write_kaggle(const TempFolder& folder) {
  std::string header, train = "label", test;
  for (int i = 0; i < 784; ++i) header += ",pixel" + std::to_string(i);
  train += header + "\n";
  test = header.substr(1) + "\n";
  for (int i = 0; i < 60; ++i) train += std::to_string(i % 10) + kaggle_row(i % 10, i % 3) + "\n";
  for (int i = 0; i < 25; ++i) test += kaggle_row(i % 10, i % 3).substr(1) + "\n";
  folder.write("train.csv", train);
  folder.write("test.csv", test);
}

}  // namespace

TEST_CASE("bad arguments: exit code 2, one sentence, nothing on stdout") {
  const TempFolder folder;
  const std::pair<const char*, const char*> cases[] = {{"--epochs 0", "--epochs must be positive, it is 0"},
                                                       {"--epochs ten", "--epochs"},
                                                       {"--batch -1", "--batch must be positive, it is -1"},
                                                       {"--lr 0", "--lr must be positive"},
                                                       {"--lr inf", "--lr must be a finite number"},
                                                       {"--gamma 1.5", "--gamma must be above 0 and at most 1"},
                                                       {"--gamma 0.9 --model ghouzam", "--gamma belongs to --model pytorch"},
                                                       {"--model resnet", "--model"},
                                                       {"--optimizer lion", "--optimizer"},
                                                       {"--precision half", "--precision"},
                                                       {"--device tpu", "--device must be cpu, gpu or cpu,gpu, it is 'tpu'"},
                                                       {"--device cpu,cpu", "--device must be cpu, gpu or cpu,gpu"},
                                                       {"--device cpu,", "--device must be cpu, gpu or cpu,gpu"},
                                                       {"--threads -2", "--threads must be positive"},
                                                       {"--limit -2", "--limit must be positive"},
                                                       {"--seed -1", "--seed"},
                                                       {"--data a --kaggle b", "--data and --kaggle exclude each other"},
                                                       {"--submission a.csv", "--submission needs --kaggle"},
                                                       {"--device cpu,gpu --checkpoint a", "single --device"},
                                                       {"--fast", "--fast"},
                                                       {"digits", "digits"}};
  for (const auto& [arguments, text] : cases) {
    const auto result = run(folder, arguments);
    INFO(arguments << ": " << result.error);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK_THAT(result.error, Catch::Matchers::StartsWith("mnist_cnn: ") && ContainsSubstring(text));
    CHECK(std::count(result.error.begin(), result.error.end(), '\n') == 1);
  }
  const auto help = run(folder, "--help");
  CHECK(help.exit_code == 0);
  CHECK_THAT(help.out, ContainsSubstring("--augment"));
}

TEST_CASE("failures: exit code 1 and the file's name") {
  const TempFolder folder;
  const auto absent = run(folder, "--device cpu --data " + (folder / "absent"));
  CHECK(absent.exit_code == 1);
  CHECK_THAT(absent.error, ContainsSubstring("absent") && ContainsSubstring("train-images-idx3-ubyte"));
  folder.write("train.csv", "label,pixel0\n1,2\n");
  const auto narrow = run(folder, "--device cpu --kaggle " + folder.path());
  CHECK(narrow.exit_code == 1);
  CHECK_THAT(narrow.error, ContainsSubstring("train.csv") && ContainsSubstring("2 columns"));
  folder.write("text", "not a checkpoint");
  const auto resumed = run(folder, "--device cpu --limit 20 --resume " + (folder / "text"));
  CHECK(resumed.exit_code == 1);
  CHECK_THAT(resumed.error, ContainsSubstring("text"));
  const auto unwritable = run(folder, "--device cpu --limit 20 --epochs 1 --json " + (folder / "none/figures.json"));
  CHECK(unwritable.exit_code == 1);
  CHECK_THAT(unwritable.error, ContainsSubstring("none/figures.json"));
}

TEST_CASE("the figures: every field, the same for one thread and two") {
  const TempFolder folder;
  const std::string arguments = "--limit 150 --epochs 2 --seed 7 ";
  const json one = train(folder, arguments + "--threads 1");
  REQUIRE(one.size() == 1);
  CHECK(one[0]["model"] == "pytorch");
  CHECK(one[0]["device"] == "cpu");
  CHECK(one[0]["threads"] == 1);
  CHECK(one[0]["parameters"] == 1199882);
  CHECK(one[0]["epochs"].size() == 2);
  CHECK(one[0]["first_losses"].size() == 6);
  CHECK(one[0]["epochs"][1]["seconds"].get<double>() > 0);
  CHECK(one[0]["test_accuracy"] == one[0]["epochs"][1]["val_accuracy"]);
  CHECK(one[0]["test_loss"].get<double>() > 0);
  CHECK(one[0]["seconds_total"].get<double>() > one[0]["epochs"][1]["seconds"].get<double>());
  const json two = train(folder, arguments + "--threads 2");
  CHECK(two[0]["threads"] == 2);
  CHECK(figures(two) == figures(one));
  CHECK(figures(train(folder, "--limit 150 --epochs 2 --seed 8 --threads 2")) != figures(one));
}

TEST_CASE("a resumed run goes on with the same figures") {
  const TempFolder folder;
  for (const std::string model : {"pytorch", "ghouzam --augment"}) {
    const std::string arguments = "--limit 100 --batch 32 --model " + model + " ", file = folder / "run.ckpt";
    const json whole = train(folder, arguments + "--epochs 3");
    train(folder, arguments + "--epochs 2 --checkpoint " + file);
    const json resumed = train(folder, arguments + "--epochs 3 --resume " + file);
    CHECK(figures(resumed) == figures(whole));
    CHECK(resumed[0]["test_loss"] == whole[0]["test_loss"]);

    const auto done = run(folder, "--device cpu " + arguments + "--epochs 2 --resume " + file);
    CHECK(done.exit_code == 1);
    CHECK_THAT(done.error, ContainsSubstring("run.ckpt") && ContainsSubstring("has done 2 epochs"));
    const auto other = run(folder, "--device cpu " + arguments + "--seed 5 --epochs 3 --resume " + file);
    CHECK(other.exit_code == 1);
    CHECK_THAT(other.error, ContainsSubstring("was trained with seed 1, this run has seed 5"));
  }
}

TEST_CASE("ghouzam: its size, its own validation digits, another optimizer") {
  const TempFolder folder;
  const json runs = train(folder, "--model ghouzam --limit 60 --epochs 1 --optimizer adam --lr 0.002");
  CHECK(runs[0]["model"] == "ghouzam");
  CHECK(runs[0]["parameters"] == 887530);
  CHECK_THAT(file_bytes(folder / "stdout"), ContainsSubstring("54 training, 6 validation and 60 test digits"));
}

TEST_CASE("Kaggle's files: a tenth validates, and every test image gets an answer") {
  const TempFolder folder;
  write_kaggle(folder);
  train(folder, "--epochs 1 --kaggle " + folder.path() + " --submission " + (folder / "answers.csv"));
  CHECK_THAT(file_bytes(folder / "stdout"), ContainsSubstring("54 training and 6 validation digits"));
  const std::string answers = file_bytes(folder / "answers.csv");
  CHECK_THAT(answers, Catch::Matchers::StartsWith("ImageId,Label\n1,") && ContainsSubstring("\n25,"));
  CHECK(std::count(answers.begin(), answers.end(), '\n') == 26);
}

TEST_CASE("it learns, says so in plain lines, and writes a report") {
  const TempFolder folder;
  const json runs = train(folder, "--limit 1500 --epochs 2 --report " + (folder / "report"));
  CHECK(runs[0]["test_accuracy"].get<double>() > 0.85);
  CHECK(runs[0]["epochs"][1]["loss"].get<double>() < runs[0]["epochs"][0]["loss"].get<double>());
  const std::string out = file_bytes(folder / "stdout");
  CHECK_THAT(out, ContainsSubstring("epoch 1/2  loss ") && ContainsSubstring("test accuracy 0.") && ContainsSubstring("per epoch") &&
                      !ContainsSubstring("\x1b"));
  CHECK_THAT(out, ContainsSubstring("report: " + (folder / "report/index.html")));
  const std::string html = file_bytes(folder / "report/index.html");
  CHECK_THAT(html, ContainsSubstring("model pytorch, 2 epochs") && ContainsSubstring("Confusion matrix") &&
                       ContainsSubstring("Worst errors of cpu") && ContainsSubstring("Adadelta, lr 1, rho 0.9"));
}

TEST_CASE("cpu,gpu trains on both, with the same figures, and compares them in the report") {
  const TempFolder folder;
  const auto result =
      run(folder, "--device cpu,gpu --limit 100 --epochs 2 --json " + (folder / "a.json") + " --report " + folder.path(), kSimulatedGpu);
  INFO(result.error);
  REQUIRE(result.exit_code == 0);
  const json runs = json::parse(file_bytes(folder / "a.json"))["runs"];
  REQUIRE(runs.size() == 2);
  CHECK(runs[0]["device"] == "cpu");
  CHECK(runs[1]["device"] == "gpu");
  CHECK(figures(json{runs[0]}) == figures(json{runs[1]}));  // the simulated GPU computes with the CPU's kernels
  CHECK_THAT(file_bytes(folder / "index.html"), ContainsSubstring("as fast on gpu as on cpu") && ContainsSubstring("Worst errors of gpu"));

  const std::string graph = "--device gpu --graph --limit 100 --batch 32 --epochs 2 --json " + (folder / "b.json");
  REQUIRE(run(folder, graph, kSimulatedGpu).exit_code == 0);
  const json captured = json::parse(file_bytes(folder / "b.json"))["runs"];
  CHECK(captured[0]["first_losses"].size() == 8);
  CHECK(figures(captured) == figures(train(folder, "--limit 100 --batch 32 --epochs 2 --graph --threads 2")));

  const auto missing = run(folder, "--device gpu --limit 20 --epochs 1", kNoGpu);
  CHECK(missing.exit_code == 1);
  CHECK_THAT(missing.error, ContainsSubstring("GPU:0"));
}
