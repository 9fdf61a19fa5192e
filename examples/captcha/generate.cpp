#include "commands.hpp"

#include "png_file.hpp"

#include <tensorlite/device.hpp>
#include <tensorlite/io.hpp>
#include <tensorlite/report.hpp>

#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <thread>

namespace captcha {

namespace tl = tensorlite;
using tl::detail::concat;
using Clock = std::chrono::steady_clock;

namespace {

std::string file_name(std::int64_t index) {
  char name[40];
  std::snprintf(name, sizeof name, "%06lld.png", static_cast<long long>(index));
  return name;
}

/// Calls work(0), work(1)... work(count - 1) from several threads and passes on the first exception.
template <class Work> void in_threads(std::int64_t count, int threads, Work&& work) {
  std::atomic<std::int64_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto run = [&] {
    try {
      for (std::int64_t i; (i = next++) < count;) work(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(run);
  run();
  for (std::thread& thread : others) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace

void generate(const GenerateSettings& settings) {
  const Generator generator(settings.size, kLettersAndDigits, static_cast<std::uint64_t>(settings.seed),
                            std::make_shared<const Glyphs>(settings.font, kLettersAndDigits));
  const std::filesystem::path folder(settings.out);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw tl::IoError("generate", settings.out, concat("cannot make the folder: ", error.message()));

  const auto start = Clock::now();
  const int threads = settings.threads > 0 ? settings.threads : tl::config::get_num_threads();
  in_threads(settings.count, static_cast<int>(std::min<std::int64_t>(threads, settings.count)), [&](std::int64_t i) {
    std::vector<std::uint8_t> rgb(settings.size.bytes());
    generator.draw(kFirstTraining + i, rgb);
    write_png((folder / file_name(i)).string(), settings.size, rgb);
  });
  std::string labels = "file,text\n";
  for (std::int64_t i = 0; i < settings.count; ++i) labels += concat(file_name(i), ",", generator.text(kFirstTraining + i), "\n");
  tl::io::write_text((folder / "labels.csv").string(), labels);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::cout << settings.count << " captchas of " << settings.size.width << "x" << settings.size.height << " in " << settings.out << ", "
            << tl::report::format_duration(seconds) << std::endl;
}

}  // namespace captcha
