#include "digits.hpp"

#include <algorithm>
#include <filesystem>
#include <numeric>

namespace mnist_cnn {

namespace tl = tensorlite;
using tl::data::ImageSet;
using tl::detail::concat;

namespace {

/// Keeps the split's random order apart from those of the epochs.
constexpr std::uint64_t kSplitStream = std::uint64_t{1} << 40;

Images share(ImageSet&& images) { return std::make_shared<const ImageSet>(std::move(images)); }

ImageSet limited(ImageSet&& images, std::int64_t limit) {
  if (limit == 0 || images.count <= limit) return std::move(images);
  std::vector<std::int64_t> first(static_cast<std::size_t>(limit));
  std::iota(first.begin(), first.end(), 0);
  return tl::data::select_images(images, first);
}

/// Nine tenths to train with, one to validate with.
std::pair<Images, Images> split(ImageSet&& images, std::int64_t seed) {
  TL_CHECK(images.count >= 2, ValueError, "mnist_cnn", images.count, " training images cannot be split into training and validation");
  const auto order = tl::data::shuffled_indices(images.count, static_cast<std::uint64_t>(seed), kSplitStream);
  const std::size_t held_out = std::max<std::size_t>(1, order.size() / 10);
  const std::span<const std::int64_t> all(order);
  return {share(tl::data::select_images(images, all.subspan(held_out))), share(tl::data::select_images(images, all.first(held_out)))};
}

std::string bundled_folder() {
  for (const char* folder : {TENSORLITE_SOURCE_DIR "/data/mnist", "data/mnist"})
    if (std::filesystem::exists(folder)) return folder;
  throw tl::IoError("mnist_cnn", "data/mnist", "the bundled sample is not here; name a folder with --data");
}

Digits read_kaggle(const Settings& settings) {
  const std::filesystem::path folder(settings.kaggle);
  auto [train, validation] = split(limited(tl::data::read_kaggle_digits((folder / "train.csv").string()), settings.limit), settings.seed);
  Digits digits{train, validation, validation, nullptr, ""};
  digits.description = concat(settings.kaggle, ": ", train->count, " training and ", validation->count, " validation digits");
  if (!settings.submission.empty()) digits.unlabelled = share(tl::data::read_kaggle_digits((folder / "test.csv").string()));
  return digits;
}

}  // namespace

Digits read_digits(const Settings& settings, const Recipe& recipe) {
  if (!settings.kaggle.empty()) return read_kaggle(settings);
  const std::string folder = settings.data.empty() ? bundled_folder() : settings.data;
  tl::data::Mnist mnist = tl::data::read_mnist(folder);
  TL_CHECK(mnist.train.height == 28 && mnist.train.width == 28 && mnist.test.height == 28 && mnist.test.width == 28, ValueError,
           "mnist_cnn", "the images in '", folder, "' are not 28 x 28");
  TL_CHECK(mnist.train.count > 0 && mnist.test.count > 0, ValueError, "mnist_cnn", "'", folder, "' holds no images");
  Digits digits;
  digits.test = share(limited(std::move(mnist.test), settings.limit));
  if (recipe.own_validation) {
    std::tie(digits.train, digits.validation) = split(limited(std::move(mnist.train), settings.limit), settings.seed);
  } else {
    digits.train = share(limited(std::move(mnist.train), settings.limit));
    digits.validation = digits.test;
  }
  digits.description = concat(settings.data.empty() ? "bundled sample" : settings.data, ": ", digits.train->count, " training",
                              recipe.own_validation ? concat(", ", digits.validation->count, " validation") : "", " and ",
                              digits.test->count, " test digits");
  return digits;
}

}  // namespace mnist_cnn
