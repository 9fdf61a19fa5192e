// Networks that read captchas: their parts, and the program as its users meet it.
#include "evaluate.hpp"
#include "network.hpp"
#include "png_file.hpp"

#include <tensorlite/io.hpp>
#include <tensorlite/tensorlite.hpp>

#include "catch.hpp"
#include "temp_folder.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <sys/wait.h>

using namespace captcha;
namespace tl = tensorlite;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

struct Result {
  int exit_code = -1;
  std::string out, error;
};

Result run(const TempFolder& folder, const std::string& arguments, const std::string& environment = "TENSORLITE_CUDA_PLUGIN=/nowhere") {
  const std::string out = folder / "stdout", error = folder / "stderr";
  const int status = std::system((environment + " timeout 900 " TENSORLITE_CAPTCHA " " + arguments + " >" + out + " 2>" + error).c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, file_bytes(out), file_bytes(error)};
}

/// A few steps of a small network on the CPU; the figures.
json train(const TempFolder& folder, const std::string& arguments, int threads = 1) {
  const std::string setting = "train --device cpu --size small --batch 8 --validation 1 --test 16 --threads " + std::to_string(threads);
  const auto result = run(folder, setting + " --json " + (folder / "figures.json") + " " + arguments);
  INFO(result.error);
  REQUIRE(result.exit_code == 0);
  return json::parse(file_bytes(folder / "figures.json"));
}

/// The file of the first picture in a report.
std::string first_picture(const std::string& html) {
  const std::string mark = "data:image/png;base64,", digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t group = 0;
  int bits = 0;
  for (std::size_t at = html.find(mark) + mark.size(); html[at] != '=' && html[at] != '"'; ++at) {
    group = group << 6 | static_cast<std::uint32_t>(digits.find(html[at]));
    bits += 6;
    if (bits >= 8) bytes += static_cast<char>(group >> (bits -= 8) & 0xff);
  }
  return bytes;
}

/// All figures of all epochs but the time.
std::vector<double> figures(const json& run) {
  std::vector<double> values;
  for (const auto& epoch : run["epochs"])
    for (const char* key : {"loss", "accuracy", "val_loss", "val_accuracy"}) values.push_back(epoch[key].get<double>());
  values.push_back(run["test_loss"].get<double>());
  return values;
}

}  // namespace

TEST_CASE("the published sizes") {
  const std::tuple<const char*, std::int64_t, std::int64_t> cases[] = {
      {"cnn", 2653360, 0}, {"ctc-gru", 3157317, 16}, {"ctc-lstm", 3417541, 12}};
  for (const auto& [name, size, frames] : cases) {
    const Recipe recipe = make_recipe(name, "full");
    const auto model = make_model(recipe);
    CHECK(published_size(recipe, *model) == size);
    if (frames > 0) CHECK(recipe.frames() == frames);
    const tl::NoGradGuard no_grad;
    model->eval();
    const tl::Tensor scores = (*model)(tl::zeros({2, recipe.image.height, recipe.image.width, 3}));
    CHECK(scores.sizes() == (frames > 0 ? tl::Dims{frames, 2, 37} : tl::Dims{2, 4, 36}));
  }
  CHECK_THROWS_AS(make_recipe("resnet", "full"), tl::ValueError);
  CHECK_THROWS_AS(make_recipe("cnn", "tiny"), tl::ValueError);
}

TEST_CASE("texts become classes and come back; what is no letter is named") {
  const Codec heads("0123AB", Blank::none), first("0123AB", Blank::first), last("0123AB", Blank::last);
  CHECK(heads.classes() == 6);
  CHECK(first.classes() == 7);
  CHECK(heads.encode("0B1") == std::vector<std::int64_t>{0, 5, 1});
  CHECK(first.encode("0B1") == std::vector<std::int64_t>{1, 6, 2});
  CHECK(last.encode("0B1") == std::vector<std::int64_t>{0, 5, 1});
  CHECK(first.blank() == 0);
  CHECK(last.blank() == 6);
  for (const Codec& codec : {heads, first, last}) CHECK(codec.decode(codec.encode("A32B")) == "A32B");
  CHECK(last.decode(std::vector<std::int64_t>{6, 1, 6}) == "1");
  const auto error = [&](const char* text) { return error_text<tl::ValueError>([&] { heads.encode(text); }); };
  CHECK_THAT(error("A?B1"), ContainsSubstring("the label 'A?B1' has '?', which is not among the letters 0123AB"));
  CHECK_THAT(error("ab12"), ContainsSubstring("'a'"));
  CHECK_THAT(error("A\xc3\x96"), ContainsSubstring("byte 195"));
}

TEST_CASE("readings are compared with the truth letter by letter") {
  using Pairs = std::vector<std::pair<char, char>>;
  CHECK(aligned("AB12", "AB12") == Pairs{{'A', 'A'}, {'B', 'B'}, {'1', '1'}, {'2', '2'}});
  CHECK(aligned("O0", "0O") == Pairs{{'O', '0'}, {'0', 'O'}});
  CHECK(aligned("AB12", "A12") == Pairs{{'A', 'A'}, {'B', '\0'}, {'1', '1'}, {'2', '2'}});
  CHECK(aligned("AB", "AXB") == Pairs{{'A', 'A'}, {'\0', 'X'}, {'B', 'B'}});
  CHECK(aligned("AB", "") == Pairs{{'A', '\0'}, {'B', '\0'}});

  Evaluation evaluation;
  evaluation.readings = {{0, "O0AA", "00AA", 3}, {1, "OO11", "OO11", 0.5}, {2, "O123", "123", 4}};
  CHECK(evaluation.right() == 1);
  CHECK(evaluation.accuracy() == Approx(1.0 / 3));
  CHECK(evaluation.mean_loss() == Approx(2.5));
  CHECK(evaluation.hardest(2)[0].index == 2);
  CHECK(evaluation.hardest(2)[1].index == 0);
  const auto letters = evaluation.letters();
  CHECK(letters.at('O').shown == 4);
  CHECK(letters.at('O').wrong == 2);
  CHECK(letters.at('1').wrong == 0);
  CHECK_THAT(describe_errors(evaluation, 5), ContainsSubstring("O 2 of 4 (missed: 1, as 0: 1)"));
  CHECK(error_table(evaluation).rows == std::vector<std::vector<std::string>>{{"O", "4", "2", "50.00 %", "missed: 1, as 0: 1"}});
}

TEST_CASE("scores become texts and losses: heads, blank first, blank last") {
  for (const char* name : {"cnn", "ctc-gru", "ctc-lstm"}) {
    const Recipe recipe = make_recipe(name, "full");
    const Interpreter interpreter(recipe);
    const Codec codec = recipe.codec();
    const std::vector<std::string> texts{"AA1Z", "0O0O"};
    const Targets targets = interpreter.encode(texts);
    CHECK(targets.classes.sizes() == tl::Dims{2, 4});
    CHECK(interpreter.truths(targets.classes) == texts);
    // Scores that spell them: a blank between letters, the first letter for two frames.
    const std::int64_t frames = recipe.recurrent() ? recipe.frames() : 4;
    std::vector<float> scores(static_cast<std::size_t>(frames * 2 * codec.classes()));
    for (std::int64_t n = 0; n < 2; ++n) {
      const auto classes = codec.encode(texts[static_cast<std::size_t>(n)]);
      for (std::int64_t f = 0; f < frames; ++f) {
        const std::int64_t place = f == 0 ? 0 : f - 1;
        const std::int64_t c = !recipe.recurrent()               ? classes[static_cast<std::size_t>(f)]
                               : place % 2 == 0 && place / 2 < 4 ? classes[static_cast<std::size_t>(place / 2)]
                                                                 : codec.blank();
        const std::int64_t row = recipe.recurrent() ? f * 2 + n : n * frames + f;
        scores[static_cast<std::size_t>(row * codec.classes() + c)] = 12;
      }
    }
    const tl::Tensor tensor =
        tl::from_vector(scores, recipe.recurrent() ? tl::Dims{frames, 2, codec.classes()} : tl::Dims{2, 4, codec.classes()});
    INFO(name);
    CHECK(interpreter.texts(interpreter.choices(tensor)) == texts);
    const auto right = interpreter.losses(tensor, targets).to_vector<float>();
    const auto wrong = interpreter.losses(tensor, interpreter.encode({"AA1Y", "OO0O"})).to_vector<float>();
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(right[i] < 0.02f);
      CHECK(wrong[i] > 5);
    }
    const double divisor = name == std::string("ctc-lstm") ? 4 : 1;  // PyTorch's mean is over letters, too
    CHECK(interpreter.loss(tensor, targets.classes).item<float>() == Approx((right[0] + right[1]) / 2 / divisor).epsilon(1e-4));
  }
}

TEST_CASE("labels that a network cannot say") {
  const Interpreter heads(make_recipe("cnn", "full")), lstm(make_recipe("ctc-lstm", "full"));
  const auto error = [](const Interpreter& interpreter, const char* text) {
    return error_text<tl::ValueError>([&] { interpreter.encode({text}); });
  };
  CHECK_THAT(error(heads, "ABC"), ContainsSubstring("the label 'ABC' has 3 letters, model cnn reads 4"));
  CHECK(error(lstm, "ABCDEFGHIJKL").empty());
  CHECK_THAT(error(lstm, "ABCDEFGHIJKLM"), ContainsSubstring("'ABCDEFGHIJKLM' needs 13 frames, model ctc-lstm has 12"));
  CHECK_THAT(error(lstm, "AABBCCDDEE"), ContainsSubstring("needs 15 frames"));
  const Targets targets = lstm.encode({"AB", "", "ABC"});
  CHECK(targets.classes.sizes() == tl::Dims{3, 3});
  CHECK(targets.lengths.to_vector<std::int64_t>() == std::vector<std::int64_t>{2, 0, 3});
}

TEST_CASE("drawn pictures: new ones every epoch, with their classes") {
  const Recipe recipe = make_recipe("ctc-lstm", "small");
  const Interpreter interpreter(recipe);
  const auto generator = std::make_shared<const Generator>(recipe.image, recipe.alphabet, 1,
                                                           std::make_shared<const Glyphs>(Glyphs::default_font(), recipe.alphabet));
  const DrawnPictures pictures(generator, interpreter, 100, 10);
  const std::vector<std::int64_t> indices{3, 0};
  const auto batch = pictures.get(indices, 2);
  CHECK(batch.data.sizes() == tl::Dims{2, recipe.image.height, recipe.image.width, 3});
  CHECK(batch.data.dtype() == tl::kUInt8);
  CHECK(interpreter.truths(batch.target) == std::vector<std::string>{generator->text(123), generator->text(120)});
  std::vector<std::uint8_t> rgb(recipe.image.bytes());
  generator->draw(123, rgb);
  const auto bytes = batch.data.to_vector<std::uint8_t>();
  CHECK(std::equal(rgb.begin(), rgb.end(), bytes.begin()));
  const tl::Tensor input = to_input(batch.data);
  CHECK(input.to_vector<float>()[5] == Approx(bytes[5] / 255.0));
}

// --------------------------------------------------------------------------------------------------------------------- the program

TEST_CASE("captcha train: bad arguments are exit code 2 and one sentence") {
  const TempFolder folder;
  const std::pair<const char*, const char*> cases[] = {
      {"train", "--model"},
      {"train --model resnet", "--model"},
      {"train --model cnn --size tiny", "--size"},
      {"train --model cnn --device tpu", "--device"},
      {"train --model cnn --epochs 0", "--epochs must be positive numbers with commas between, it is '0'"},
      {"train --model cnn --epochs 3,", "it is '3,'"},
      {"train --model cnn --epochs 3,2,1", "--epochs has 3 stages, --lr 2"},
      {"train --model cnn --lr 1e-3,-1", "--lr must be positive numbers"},
      {"train --model cnn --lr 1e-3 --epochs 1,2", "--epochs has 2 stages, --lr 1"},
      {"train --model cnn --batch 0", "--batch must be positive, it is 0"},
      {"train --model cnn --steps -1", "--steps must be positive, it is -1"},
      {"train --model cnn --validation 0", "--validation must be positive"},
      {"train --model cnn --patience -1", "--patience must not be negative, it is -1"},
      {"train --model cnn --test 0", "--test must be positive"},
      {"train --model cnn --precision half", "--precision"},
      {"train --model cnn --pause-after 5", "--pause-after needs --checkpoint"},
      {"train --model cnn --seed -1", "--seed must not be negative"},
      {"evaluate", "--checkpoint"},
      {"evaluate --checkpoint a --count 0", "--count must be positive"},
      {"read --checkpoint a", "pictures"}};
  for (const auto& [arguments, text] : cases) {
    const auto result = run(folder, arguments);
    INFO(arguments << ": " << result.error);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    CHECK_THAT(result.error, Catch::Matchers::StartsWith("captcha: ") && ContainsSubstring(text));
    CHECK(std::count(result.error.begin(), result.error.end(), '\n') == 1);
  }
}

TEST_CASE("the figures: every field, the same for one thread and two") {
  const TempFolder folder;
  const std::string arguments = "--model ctc-lstm --steps 3 --epochs 1,1 --seed 7 ";
  const json one = train(folder, arguments);
  CHECK(one["model"] == "ctc-lstm");
  CHECK(one["size"] == "small");
  CHECK(one["device"] == "cpu");
  CHECK(one["threads"] == 1);
  CHECK(one["parameters"].get<int>() > 100000);
  CHECK(one["stages"][1]["lr"] == 1e-4);
  CHECK(one["epochs"].size() == 2);
  CHECK(one["first_losses"].size() == 3);
  CHECK(one["epochs"][0]["loss"].get<double>() ==
        Approx((one["first_losses"][0].get<double>() + one["first_losses"][1].get<double>() + one["first_losses"][2].get<double>()) / 3));
  CHECK(one["test_count"] == 16);
  CHECK(one["letters"]["0"]["shown"].get<int>() > 0);
  CHECK(one["pictures_per_second"].get<double>() > 0);
  CHECK(one["paused"] == false);
  const json two = train(folder, arguments, 2);
  CHECK(two["threads"] == 2);
  CHECK(figures(two) == figures(one));
  CHECK(figures(train(folder, "--model ctc-lstm --steps 3 --epochs 1,1 --seed 8")) != figures(one));
}

TEST_CASE("a stage ends early when patience is over, and goes on from its best weights") {
  const TempFolder folder;
  const std::string file = folder / "run.ckpt";
  // At such a learning rate the validation loss jumps up and down.
  const json run = train(folder, "--model ctc-lstm --steps 3 --lr 1,1 --epochs 9,9 --patience 1 --checkpoint " + file);
  std::vector<double> losses;
  for (const auto& epoch : run["epochs"]) losses.push_back(epoch["val_loss"].get<double>());
  REQUIRE(losses.size() >= 3);
  REQUIRE(losses.size() < 18);
  CHECK(!(losses.back() < losses[losses.size() - 2]));  // the epoch that ended it was no better
  const tl::io::Checkpoint checkpoint = tl::io::load_checkpoint(file);
  for (const auto& [name, best] : checkpoint.parts.at("best"))
    if (best.dtype() == tl::kFloat32) CHECK(checkpoint.parts.at("model").at(name).to_vector<float>() == best.to_vector<float>());
  CHECK(train(folder, "--model ctc-lstm --steps 3 --lr 1,1 --epochs 3,3 --patience 0")["epochs"].size() == 6);
}

TEST_CASE("a resumed run goes on with the same figures, across stages and early stopping") {
  const TempFolder folder;
  for (const std::string model : {"ctc-lstm", "ctc-gru", "cnn"}) {
    const std::string arguments = "--model " + model + " --steps 2 ", file = folder / (model + ".ckpt");
    const json whole = train(folder, arguments + "--epochs 2,1");
    // Paused after every single epoch, so that the second run starts inside the first stage and the third one in the second.
    const json first = train(folder, arguments + "--epochs 2,1 --pause-after 0.001 --checkpoint " + file);
    CHECK(first["paused"] == true);
    CHECK(first["epochs"].size() == 1);
    CHECK_THAT(file_bytes(folder / "stdout"), ContainsSubstring("paused; --resume " + file));
    train(folder, arguments + "--epochs 2,1 --pause-after 0.001 --checkpoint " + file + " --resume " + file);
    const json last = train(folder, arguments + "--epochs 2,1 --checkpoint " + file + " --resume " + file);
    INFO(model);
    CHECK(figures(last) == figures(whole));
    CHECK(last["first_losses"] == whole["first_losses"]);
    CHECK(last["letters"] == whole["letters"]);
  }
  // The finished checkpoint is tested again, nothing more.
  const json again = train(folder, "--model cnn --steps 2 --epochs 2,1 --resume " + (folder / "cnn.ckpt"));
  CHECK(again["epochs"].size() == 3);
  const std::string base = "train --device cpu --size small --batch 8 --validation 1 --test 16 --steps 2 --resume " + (folder / "cnn.ckpt");
  const std::pair<const char*, const char*> others[] = {{" --model ctc-gru", "was trained with model cnn, this run has model ctc-gru"},
                                                        {" --model cnn --seed 5", "was trained with seed 1, this run has seed 5"},
                                                        {" --model cnn --lr 1e-2,1e-3", "was trained with lr"}};
  for (const auto& [arguments, text] : others) {
    const auto other = run(folder, base + arguments);
    CHECK(other.exit_code == 1);
    CHECK_THAT(other.error, ContainsSubstring("cnn.ckpt") && ContainsSubstring(text));
    CHECK(std::count(other.error.begin(), other.error.end(), '\n') == 1);
  }
}

TEST_CASE("a trained network is evaluated and reads pictures; what it cannot read is refused in one sentence") {
  const TempFolder folder;
  const std::string file = folder / "run.ckpt", options = " --device cpu --checkpoint " + file;
  const json trained = train(folder, "--model ctc-lstm --steps 2 --epochs 1,1 --checkpoint " + file + " --report " + (folder / "report"));
  const std::string html = file_bytes(folder / "report/index.html");
  CHECK_THAT(html, ContainsSubstring("Captchas: model ctc-lstm (small), 2 epochs") && ContainsSubstring("<h2>Samples</h2>") &&
                       ContainsSubstring("<h2>Hardest cases</h2>") && ContainsSubstring("Errors per letter") &&
                       ContainsSubstring("data:image/png;base64,"));
  const Recipe recipe = make_recipe("ctc-lstm", "small");
  std::vector<std::uint8_t> rgb(recipe.image.bytes());
  Generator(recipe.image, recipe.alphabet, 1, std::make_shared<const Glyphs>(Glyphs::default_font(), recipe.alphabet))
      .draw(kFirstEvaluation, rgb);
  CHECK(read_png(folder.write("first.png", first_picture(html)), recipe.image).bytes == rgb);

  const auto fresh = run(folder, "evaluate --count 16 --json " + (folder / "evaluation.json") + options);
  INFO(fresh.error);
  REQUIRE(fresh.exit_code == 0);
  CHECK_THAT(fresh.out, ContainsSubstring("of 16 texts right"));
  const json evaluation = json::parse(file_bytes(folder / "evaluation.json"));
  CHECK(evaluation["loss"].get<double>() == Approx(trained["test_loss"].get<double>()).epsilon(1e-5));  // the same pictures
  CHECK(evaluation["accuracy"] == trained["test_accuracy"]);

  // A folder of pictures, which draws letters that a network of digits does not know.
  REQUIRE(run(folder, "generate --count 3 --size 192x64 --out " + (folder / "drawn")).exit_code == 0);
  const std::string labels = folder / "drawn/labels.csv";
  const auto folder_error = [&](const std::string& lines) {
    folder.write("drawn/labels.csv", lines);
    const auto result = run(folder, "evaluate --data " + (folder / "drawn") + options);
    CHECK(result.exit_code == (result.error.empty() ? 0 : 1));
    CHECK(std::count(result.error.begin(), result.error.end(), '\n') == (result.error.empty() ? 0 : 1));
    return result.error;
  };
  CHECK(folder_error("file,text\n000000.png,1234\r\n000001.png,99\n").empty());
  CHECK_THAT(folder_error("000000.png,12A4\n"), ContainsSubstring("the label '12A4' has 'A', which is not among the letters 0123456789"));
  CHECK_THAT(folder_error("000000.png,12345678901234567890123456\n"), ContainsSubstring("needs 26 frames, model ctc-lstm has 12"));
  CHECK_THAT(folder_error("000000.png;1234\n"), ContainsSubstring("labels.csv") && ContainsSubstring("line 1 is not 'file,text'"));
  CHECK_THAT(folder_error("file,text\n"), ContainsSubstring("names no pictures"));
  CHECK_THAT(folder_error("none.png,1234\n"), ContainsSubstring("none.png"));
  CHECK_THAT(run(folder, "evaluate --data " + (folder / "none") + options).error, ContainsSubstring("none/labels.csv"));

  const std::string picture = folder / "drawn/000000.png";
  const auto read = run(folder, "read " + picture + " " + (folder / "drawn/000001.png") + options);
  CHECK(read.exit_code == 0);
  CHECK_THAT(read.out, Catch::Matchers::StartsWith(picture + ": ") && ContainsSubstring("000001.png: "));
  REQUIRE(run(folder, "generate --count 1 --size 128x64 --out " + (folder / "narrow")).exit_code == 0);
  folder.write("text.png", "no picture");
  const std::pair<std::string, const char*> pictures[] = {{folder / "narrow/000000.png", "is 128x64 pixels, 192x64 are expected"},
                                                          {folder / "text.png", "is not a PNG picture"},
                                                          {folder / "none.png", "there is no such file"}};
  for (const auto& [path, text] : pictures) {
    const auto result = run(folder, "read " + picture + " " + path + options);
    CHECK(result.exit_code == 1);
    CHECK(result.out.empty());
    CHECK_THAT(result.error, ContainsSubstring(path) && ContainsSubstring(text));
    CHECK(std::count(result.error.begin(), result.error.end(), '\n') == 1);
  }
}

TEST_CASE("checkpoints of other programs and networks are refused in one sentence") {
  const TempFolder folder;
  const auto error = [&](const std::string& file) {
    const auto result = run(folder, "read " + (folder / "a.png") + " --device cpu --checkpoint " + file);
    CHECK(result.exit_code == 1);
    CHECK(std::count(result.error.begin(), result.error.end(), '\n') == 1);
    return result.error;
  };
  CHECK_THAT(error(folder / "none.ckpt"), ContainsSubstring("none.ckpt"));
  CHECK_THAT(error(folder.write("text.ckpt", "not a checkpoint")), ContainsSubstring("text.ckpt"));
  const auto digits = std::make_shared<tl::nn::Linear>(784, 10);
  tl::io::save_checkpoint(folder / "mnist.ckpt", {{{"model", digits->state_dict()}}, {{"model", "pytorch"}}});
  CHECK_THAT(error(folder / "mnist.ckpt"), ContainsSubstring("mnist.ckpt") && ContainsSubstring("is no checkpoint of captcha"));
  tl::io::save_checkpoint(folder / "wrong.ckpt", {{{"model", digits->state_dict()}}, network_identity(make_recipe("cnn", "small"))});
  CHECK_THAT(error(folder / "wrong.ckpt"), ContainsSubstring("holds no weights of model cnn"));
  auto odd = network_identity(make_recipe("cnn", "small"));
  odd["model"] = "resnet";
  tl::io::save_checkpoint(folder / "odd.ckpt", {{{"model", digits->state_dict()}}, odd});
  CHECK_THAT(error(folder / "odd.ckpt"), ContainsSubstring("there is no model 'resnet'"));
}

#if defined(TENSORLITE_SIMULATED_GPU_PLUGIN)
TEST_CASE("the first steps on a GPU are those on the CPU") {
  const TempFolder folder;
  const std::string simulated = "TENSORLITE_CUDA_PLUGIN=" TENSORLITE_SIMULATED_GPU_PLUGIN " TENSORLITE_SIMULATED_GPUS=1x2048";
  for (const std::string model : {"cnn", "ctc-gru", "ctc-lstm", "ctc-lstm --graph"}) {  // a captured step is the same step
    const std::string arguments = "--model " + model + " --steps 4 --epochs 1,1";
    const json on_cpu = train(folder, arguments);
    const auto result =
        run(folder, "train --device gpu --size small --batch 8 --validation 1 --test 16 --json " + (folder / "gpu.json") + " " + arguments,
            simulated);
    INFO(model << ": " << result.error);
    REQUIRE(result.exit_code == 0);
    const json on_gpu = json::parse(file_bytes(folder / "gpu.json"));
    CHECK(on_gpu["device"] == "gpu");
    CHECK(on_gpu["first_losses"] == on_cpu["first_losses"]);  // the simulated GPU computes with the CPU's kernels
    CHECK(figures(on_gpu) == figures(on_cpu));
  }
}
#endif

TEST_CASE("the full network's first 20 steps on a real GPU are within 1e-3 of those on the CPU") {
  if (tl::config::list_physical_devices("GPU").empty()) {
    SUCCEED("no GPU here");
    return;
  }
  const TempFolder folder;
  std::vector<double> losses[2];
  for (const char* device : {"cpu", "gpu"}) {
    const auto result = run(folder,
                            std::string("train --model ctc-lstm --batch 32 --steps 20 --epochs 1 --validation 1 --test 32 --device ") +
                                device + " --json " + (folder / "figures.json"),
                            "");
    INFO(result.error);
    REQUIRE(result.exit_code == 0);
    losses[device == std::string("gpu")] = json::parse(file_bytes(folder / "figures.json"))["first_losses"].get<std::vector<double>>();
  }
  REQUIRE(losses[1].size() == 20);
  for (std::size_t i = 0; i < 20; ++i) CHECK(losses[1][i] == Approx(losses[0][i]).margin(1e-3));
}

// CTest runs it on its own, with the label "slow".
TEST_CASE("learning: a small network reads digits after 22,400 pictures", "[slow]") {
  const TempFolder folder;
  const auto result =
      run(folder,
          "train --device cpu --size small --threads 1 --model ctc-lstm --epochs 1 --steps 700 --test 1000 --json " + (folder / "a.json"));
  INFO(result.error);
  REQUIRE(result.exit_code == 0);
  const json figures = json::parse(file_bytes(folder / "a.json"));
  CHECK(figures["test_accuracy"].get<double>() > 0.6);
  CHECK(figures["epochs"][0]["loss"].get<double>() < figures["first_losses"][0].get<double>() / 2);
}
