// Device names: the grammar, what is refused and why, canonical forms, merging, and a fuzzer against an independent recogniser.
#include "catch.hpp"
#include "temp_folder.hpp"

#include <tensorlite/device.hpp>

#include <random>
#include <regex>

using namespace tensorlite;

namespace {

std::string refusal(std::string_view text) {
  return error_text<ValueError>([&] { DeviceSpec::parse(text); });
}

}  // namespace

TEST_CASE("device names in every form") {
  for (const char* text :
       {"/CPU:0", "CPU:0", "cpu", "/cpu:0", "Cpu:0", "device:CPU:0", "/device:CPU", "/job:localhost/replica:0/task:0/device:CPU:0",
        "/job:localhost/CPU:0", "/replica:0/cpu:0", "/CPU:0/job:localhost", "/CPU:00"}) {
    INFO(text);
    const DeviceSpec spec = DeviceSpec::parse(text);
    CHECK(spec.type == DeviceType::cpu);
    CHECK(spec.index == 0);
    CHECK(!spec.any_index);
  }
  CHECK(DeviceSpec::parse("gpu:12").index == 12);
  CHECK(DeviceSpec::parse("/device:GPU:2147483647").index == 2147483647);
  CHECK(DeviceSpec::parse("GPU:*").any_index);
  CHECK(!DeviceSpec::parse("GPU:*").index);
  CHECK(!DeviceSpec::parse("").type);
  CHECK(!DeviceSpec::parse("/job:localhost/replica:0/task:0").type);
}

TEST_CASE("malformed device names are refused with the reason") {
  const std::pair<const char*, const char*> cases[] = {
      {"/CPU:0/GPU:0", "two device types"},
      {"GPU:0/GPU:0", "two device types"},
      {"gpu:-1", "the device index is negative"},
      {"GPU:2147483648", "the device index overflows"},
      {"GPU:99999999999999999999999", "the device index overflows"},
      {"gpu:x", "the device index is not a number"},
      {"GPU:", "the device index is not a number"},
      {"GPU: 0", "the device index is not a number"},
      {"GPU:0x", "'x' is left over"},
      {"GPU:0:1", "':1' is left over"},
      {"GPU:0 ", "' ' is left over"},
      {"GPU:1.5", "'.5' is left over"},
      {"GPU:**", "'*' is left over"},
      {" GPU:0", "a part is empty"},
      {"/", "a part is empty"},
      {"//GPU:0", "a part is empty"},
      {"GPU:0/", "a part is empty"},
      {"device:", "a part is empty"},
      {"TPU:0", "'TPU' is neither a keyword nor a device type"},
      {"gpux:0", "'GPUX' is neither a keyword nor a device type"},
      {"0", "'0' is neither a keyword nor a device type"},
      {"/rack:0/GPU:0", "'RACK' is neither a keyword nor a device type"},
      {"/job:worker/GPU:0", "job 'worker' is not this process"},
      {"/job:/GPU:0", "job '' is not this process"},
      {"/job:localhost/job:localhost", "two jobs"},
      {"/replica:0/replica:0", "two replicas"},
      {"/task:0/task:0", "two tasks"},
      {"/replica:1/GPU:0", "replica 1 is not this process"},
      {"/task:-1/GPU:0", "the task index is negative"},
      {"/task:*/GPU:0", "the task index is not a number"},
  };
  for (const auto& [text, reason] : cases) {
    INFO(text);
    const std::string message = refusal(text);
    INFO(message);
    CHECK(message.find(reason) != std::string::npos);
    CHECK(message.find(std::string("device name: '") + text + "' is malformed: ") == 0);
    CHECK(message.find("write for example") != std::string::npos);
  }
  CHECK(refusal(std::string_view("GPU:0\0", 6)).find("left over") != std::string::npos);
}

TEST_CASE("names read back") {
  CHECK(canonical_name(gpu_device(3)) == "/job:localhost/replica:0/task:0/device:GPU:3");
  CHECK(short_name(cpu_device()) == "CPU:0");
  for (Device device : {cpu_device(0), cpu_device(7), gpu_device(0), gpu_device(63)}) {
    for (const std::string& name : {canonical_name(device), short_name(device)}) {
      const DeviceSpec spec = DeviceSpec::parse(name);
      CHECK(*spec.type == device.type);
      CHECK(*spec.index == device.index);
    }
  }
}

TEST_CASE("nested specs merge and a new type resets the index") {
  const auto merged = [](const char* inner, const char* outer) { return DeviceSpec::parse(inner).merged_over(DeviceSpec::parse(outer)); };
  CHECK(*merged("", "GPU:1").type == DeviceType::gpu);
  CHECK(*merged("", "GPU:1").index == 1);
  CHECK(*merged("/job:localhost", "GPU:1").index == 1);
  CHECK(*merged("CPU", "GPU:1").type == DeviceType::cpu);
  CHECK(*merged("CPU", "GPU:1").index == 0);
  CHECK(*merged("GPU:2", "GPU:1").index == 2);
  CHECK(*merged("GPU", "GPU:1").index == 0);
  CHECK(merged("GPU:*", "GPU:1").any_index);
}

TEST_CASE("the parser agrees with a regular expression on random names") {
  const std::regex grammar(
      "(?:/?(?:job:localhost|replica:0+|task:0+|(?:device:)?(?:[cC][pP][uU]|[gG][pP][uU])(?::(?:[0-9]+|\\*))?)"
      "(?:/(?:job:localhost|replica:0+|task:0+|(?:device:)?(?:[cC][pP][uU]|[gG][pP][uU])(?::(?:[0-9]+|\\*))?))*)?");
  const char* pieces[] = {"/", "job:", "localhost", "replica:", "task:", "device:", "GPU", "cpu", "Gpu",   ":",
                          "0", "1",    "17",        "*",        "-",     "x",       " ",   "//",  "CPU:0", "GPU:1"};
  std::mt19937 random(7);
  int accepted = 0;
  for (int i = 0; i < 200000; ++i) {
    std::string text;
    for (unsigned n = random() % 7; n > 0; --n) text += pieces[random() % std::size(pieces)];
    if (random() % 8 == 0 && !text.empty()) text[random() % text.size()] = static_cast<char>(random());
    // The expression cannot count: no field twice.
    std::string lower = "/" + text;
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const auto count = [&](const char* what) {
      int n = 0;
      for (std::size_t at = lower.find(what); at != std::string::npos; at = lower.find(what, at + 1)) ++n;
      return n;
    };
    const bool valid = std::regex_match(text, grammar) && count("job:") <= 1 && count("replica:") <= 1 && count("task:") <= 1 &&
                       count("cpu") + count("gpu") <= 1;
    const std::string message = refusal(text);
    INFO("'" << text << "': " << message);
    REQUIRE(message.empty() == valid);
    accepted += valid;
  }
  CHECK(accepted > 5000);
}
