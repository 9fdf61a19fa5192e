// Shuffles, affine maps, datasets and the loader: known failure A58.
#include <tensorlite/data.hpp>

#include "catch.hpp"
#include "temp_folder.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <set>
#include <thread>

namespace tl = tensorlite;
using Catch::Matchers::ContainsSubstring;
using tl::data::DataLoader;

namespace {

std::shared_ptr<tl::data::ImageSet> ramp_images(std::int64_t count, std::int64_t side) {
  auto images = std::make_shared<tl::data::ImageSet>();
  *images = {count, side, side, {}, {}};
  for (std::int64_t i = 0; i < count * side * side; ++i) images->pixels.push_back(static_cast<std::uint8_t>(i * 37 % 256));
  for (std::int64_t i = 0; i < count; ++i) images->labels.push_back(static_cast<std::uint8_t>(i % 10));
  return images;
}

std::shared_ptr<tl::data::TensorDataset> numbers(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(2 * count));
  std::iota(values.begin(), values.end(), 0.f);
  std::vector<std::int64_t> labels(static_cast<std::size_t>(count));
  std::iota(labels.begin(), labels.end(), 0);
  const tl::TensorOptions cpu{.device = tl::cpu_device()};
  return std::make_shared<tl::data::TensorDataset>(tl::from_vector(values, {count, 2}, cpu), tl::from_vector(labels, {count}, cpu));
}

/// All values of an epoch, in order.
std::vector<float> epoch_values(DataLoader& loader) {
  std::vector<float> all;
  for (const auto& batch : loader) {
    const auto values = batch.data.to_vector<float>();
    all.insert(all.end(), values.begin(), values.end());
    for (const auto label : batch.target.to_vector<std::int64_t>()) all.push_back(static_cast<float>(label));
  }
  return all;
}

/// Fails at one index; counts how many batches it made.
class FailingDataset : public tl::data::Dataset {
 public:
  explicit FailingDataset(std::int64_t bad) : bad_(bad) {}
  std::int64_t size() const override { return 1000; }
  tl::data::Batch get(std::span<const std::int64_t> indices, std::int64_t) const override {
    ++made;
    if (std::find(indices.begin(), indices.end(), bad_) != indices.end()) throw tl::ValueError("FailingDataset", "sample is broken");
    return {tl::full({static_cast<std::int64_t>(indices.size())}, static_cast<float>(indices[0]), {.device = tl::cpu_device()}), {}};
  }
  mutable std::atomic<int> made{0};

 private:
  std::int64_t bad_;
};

std::vector<float> warped(const std::vector<std::uint8_t>& image, std::int64_t height, std::int64_t width, const tl::data::Affine& map) {
  std::vector<float> out(image.size());
  tl::data::warp_affine(image, height, width, map, out);
  return out;
}

}  // namespace

TEST_CASE("a shuffle is a permutation that seed and stream alone decide") {
  const auto order = tl::data::shuffled_indices(1000, 7, 1);
  CHECK(order == tl::data::shuffled_indices(1000, 7, 1));
  CHECK(order != tl::data::shuffled_indices(1000, 7, 2));
  CHECK(order != tl::data::shuffled_indices(1000, 8, 1));
  CHECK(std::set<std::int64_t>(order.begin(), order.end()).size() == 1000);
  CHECK(*std::max_element(order.begin(), order.end()) == 999);
  CHECK(tl::data::shuffled_indices(0, 1).empty());
  CHECK_THROWS_AS(tl::data::shuffled_indices(-1, 1), tl::ValueError);
}

TEST_CASE("affine maps: identity, shift, rotation, zoom and the nearest edge") {
  const std::vector<std::uint8_t> image{1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto map = [](double degrees, double rows, double columns, double zoom_rows, double zoom_columns) {
    return tl::data::affine_about_center(3, 3, degrees, rows, columns, zoom_rows, zoom_columns);
  };
  CHECK(warped(image, 3, 3, map(0, 0, 0, 1, 1)) == std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(warped(image, 3, 3, map(0, 1, 0, 1, 1)) == std::vector<float>{4, 5, 6, 7, 8, 9, 7, 8, 9});
  CHECK(warped(image, 3, 3, map(0, 0, -0.5, 1, 1)) == std::vector<float>{1, 1.5, 2.5, 4, 4.5, 5.5, 7, 7.5, 8.5});
  const auto turned = warped(image, 3, 3, map(90, 0, 0, 1, 1));
  const std::vector<float> expected{7, 4, 1, 8, 5, 2, 9, 6, 3};
  for (std::size_t i = 0; i < 9; ++i) CHECK(turned[i] == Approx(expected[i]).margin(1e-5));
  CHECK(warped(image, 3, 3, map(0, 0, 0, 0.5, 1)) == std::vector<float>{2.5, 3.5, 4.5, 4, 5, 6, 5.5, 6.5, 7.5});
  CHECK(warped({7, 9}, 1, 2, tl::data::affine_about_center(1, 2, 0, 50, 0, 1, 1)) == std::vector<float>{7, 9});
  std::vector<float> short_output(8);
  CHECK_THROWS_AS(tl::data::warp_affine(image, 3, 3, {}, short_output), tl::ShapeError);
}

TEST_CASE("rotation * shift * zoom is one matrix about the centre, as Keras composes it") {
  // By hand for 28 x 28, 10 degrees, shift (2, -1), zoom (0.9, 1.1): about the centre o = 13.5, p -> M (p - o) + o.
  const auto map = tl::data::affine_about_center(28, 28, 10, 2, -1, 0.9, 1.1);
  const double c = std::cos(10 * std::acos(-1) / 180), s = std::sin(10 * std::acos(-1) / 180);
  const double row = 4 - 13.5, column = 20 - 13.5;
  const double scaled_row = 0.9 * row + 2, scaled_column = 1.1 * column - 1;
  CHECK(map.m[0] * 4 + map.m[1] * 20 + map.m[2] == Approx(c * scaled_row - s * scaled_column + 13.5));
  CHECK(map.m[3] * 4 + map.m[4] * 20 + map.m[5] == Approx(s * scaled_row + c * scaled_column + 13.5));
}

TEST_CASE("random maps stay in their ranges and depend on seed, epoch and index") {
  const auto map = [](std::uint64_t seed, std::int64_t epoch, std::int64_t index) {
    return tl::data::random_affine({}, 28, 28, seed, epoch, index);
  };
  const auto same = [](const tl::data::Affine& a, const tl::data::Affine& b) { return std::equal(a.m, a.m + 6, b.m); };
  CHECK(same(map(1, 2, 3), map(1, 2, 3)));
  CHECK(!same(map(1, 2, 3), map(2, 2, 3)));
  CHECK(!same(map(1, 2, 3), map(1, 3, 3)));
  CHECK(!same(map(1, 2, 3), map(1, 2, 4)));
  double largest_angle = 0, zoom_sum = 0;
  for (std::int64_t i = 0; i < 2000; ++i) {
    const auto one = map(1, 0, i);
    const double* m = one.m;
    const double angle = std::atan2(m[3], m[0]) * 180 / std::acos(-1), zoom = std::hypot(m[0], m[3]);
    REQUIRE(std::abs(angle) <= 10);
    REQUIRE(std::abs(zoom - 1) <= 0.1 + 1e-12);
    const double center_row = m[0] * 13.5 + m[1] * 13.5 + m[2] - 13.5, center_column = m[3] * 13.5 + m[4] * 13.5 + m[5] - 13.5;
    REQUIRE(std::hypot(center_row, center_column) <= std::hypot(2.8, 2.8) + 1e-9);
    largest_angle = std::max(largest_angle, std::abs(angle));
    zoom_sum += zoom;
  }
  CHECK(largest_angle > 9.9);
  CHECK(zoom_sum / 2000 == Approx(1).margin(0.005));
}

TEST_CASE("A58: the last, smaller batch is kept and has its own size") {
  const auto sizes = [](std::int64_t count, const tl::data::DataLoaderOptions& options) {
    DataLoader loader(numbers(count), options);
    std::vector<std::int64_t> result;
    for (const auto& batch : loader) {
      CHECK(batch.data.sizes() == tl::Dims{batch.size(), 2});
      CHECK(batch.target.sizes() == tl::Dims{batch.size()});
      result.push_back(batch.size());
    }
    CHECK(loader.size() == static_cast<std::int64_t>(result.size()));
    return result;
  };
  using Sizes = std::vector<std::int64_t>;
  for (const int workers : {0, 2}) {
    CHECK(sizes(100, {.batch_size = 64, .workers = workers}) == Sizes{64, 36});
    CHECK(sizes(100, {.batch_size = 128, .workers = workers}) == Sizes{100});
    CHECK(sizes(128, {.batch_size = 64, .workers = workers}) == Sizes{64, 64});
    CHECK(sizes(100, {.batch_size = 64, .workers = workers, .drop_last = true}) == Sizes{64});
    CHECK(sizes(10, {.batch_size = 64, .workers = workers, .drop_last = true}).empty());
    CHECK(sizes(0, {.batch_size = 64, .workers = workers}).empty());
  }
}

TEST_CASE("batches are the same for any number of workers, and every epoch has its own order") {
  std::vector<std::vector<float>> reference;
  for (const int workers : {0, 1, 3}) {
    const auto images = std::make_shared<tl::data::ImageDataset>(
        ramp_images(50, 6), tl::data::ImageOptions{.mean = 0.1307, .deviation = 0.3081, .augment = tl::data::AffineRanges{}, .seed = 5});
    DataLoader loader(images, {.batch_size = 8, .shuffle = true, .seed = 3, .workers = workers, .queue = 2});
    std::vector<std::vector<float>> epochs{epoch_values(loader), epoch_values(loader)};
    CHECK(epochs[0] != epochs[1]);
    if (reference.empty()) reference = epochs;
    CHECK(epochs == reference);
    loader.set_epoch(1);
    CHECK(epoch_values(loader) == reference[1]);
  }
}

TEST_CASE("images become normalised floats, labels int64") {
  const auto images = ramp_images(3, 4);
  const tl::data::ImageDataset dataset(images, {.mean = 0.5, .deviation = 0.25});
  const std::int64_t indices[] = {2, 0};
  const auto batch = dataset.get(indices, 0);
  CHECK(batch.data.sizes() == tl::Dims{2, 4, 4, 1});
  CHECK(batch.data.device().is_cpu());
  const auto values = batch.data.to_vector<float>();
  for (std::size_t i = 0; i < 16; ++i) CHECK(values[i] == Approx((images->image(2)[i] / 255.0 - 0.5) / 0.25));
  CHECK(batch.target.to_vector<std::int64_t>() == std::vector<std::int64_t>{2, 0});
  images->labels.clear();
  CHECK(!dataset.get(indices, 0).target.defined());
  const std::int64_t outside[] = {3};
  CHECK_THROWS_AS(dataset.get(outside, 0), tl::IndexError);
}

TEST_CASE("an exception in a worker arrives at its batch, and the loader works again") {
  for (const int workers : {0, 1, 4}) {
    const auto dataset = std::make_shared<FailingDataset>(55);
    DataLoader loader(dataset, {.batch_size = 10, .workers = workers, .queue = 3});
    for (int attempt = 0; attempt < 2; ++attempt) {
      int seen = 0;
      const std::string error = error_text<tl::ValueError>([&] {
        for (const auto& batch : loader) {
          CHECK(batch.data.to_vector<float>()[0] == static_cast<float>(10 * seen));
          ++seen;
        }
      });
      CHECK(seen == 5);
      CHECK_THAT(error, ContainsSubstring("sample is broken"));
    }
  }
}

TEST_CASE("leaving a loop early neither hangs nor runs ahead of the queue") {
  const auto dataset = std::make_shared<FailingDataset>(-1);
  for (int i = 0; i < 50; ++i) {
    DataLoader loader(dataset, {.batch_size = 1, .workers = 3, .queue = 4});
    for (const auto& batch : loader)
      if (batch.data.to_vector<float>()[0] >= static_cast<float>(i % 5)) break;
    if (i % 2) continue;  // destroyed while workers wait
    std::int64_t batches = 0;
    for (const auto& batch : loader) batches += batch.size();
    CHECK(batches == 1000);
  }
  const auto fresh = std::make_shared<FailingDataset>(-1);
  DataLoader loader(fresh, {.batch_size = 1, .workers = 3, .queue = 4});
  const auto first = loader.begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(fresh->made <= 1 + 4);
}

TEST_CASE("bad loader and dataset arguments are named") {
  CHECK_THAT(error_text<tl::ValueError>([] { DataLoader(numbers(3), {.batch_size = 0}); }),
             ContainsSubstring("batch size") && ContainsSubstring("0"));
  CHECK_THROWS_AS(DataLoader(numbers(3), {.workers = -1}), tl::ValueError);
  CHECK_THROWS_AS(DataLoader(numbers(3), {.queue = 0}), tl::ValueError);
  const tl::TensorOptions cpu{.device = tl::cpu_device()};
  CHECK_THAT(error_text<tl::ShapeError>([&] {
               tl::data::TensorDataset(tl::zeros({3, 2}, cpu), tl::zeros({4}, cpu));
             }),
             ContainsSubstring("[3, 2]") && ContainsSubstring("[4]"));
  const std::int64_t outside[] = {3};
  CHECK_THROWS_AS(numbers(3)->get(outside, 0), tl::IndexError);
}
