#include "feed.hpp"

#include <tensorlite/tensorlite.hpp>

#include <algorithm>
#include <numeric>

namespace mnist_cnn {

namespace tl = tensorlite;

namespace {

class LoaderFeed : public Feed {
 public:
  LoaderFeed(std::shared_ptr<const tl::data::Dataset> dataset, const tl::data::DataLoaderOptions& options)
      : loader_(std::move(dataset), options) {}
  void run(std::int64_t epoch, const std::function<void(const Inputs&, std::int64_t)>& use) override {
    loader_.set_epoch(epoch);
    for (const auto& batch : loader_) use(batch.target.defined() ? Inputs{batch.data, batch.target} : Inputs{batch.data}, batch.size());
  }
  tl::data::Batch get(const Inputs& inputs) const override { return {inputs[0], inputs.size() > 1 ? inputs[1] : tl::Tensor()}; }

 private:
  tl::data::DataLoader loader_;
};

class ResidentFeed : public Feed {
 public:
  ResidentFeed(const tl::data::ImageSet& images, const tl::data::ImageOptions& pixels, const tl::data::DataLoaderOptions& options)
      : count_(images.count), options_(options) {
    const tl::NoGradGuard no_grad;
    const tl::DeviceScope scope(*options.device);
    // As data::ImageDataset makes them, to the last bit.
    data_ = tl::from_vector(images.pixels, {count_, images.height, images.width, 1}).to(tl::kFloat32);
    data_.mul_(static_cast<float>(1 / (255 * pixels.deviation))).add_(static_cast<float>(-pixels.mean / pixels.deviation));
    if (!images.labels.empty()) target_ = tl::from_vector(images.labels, {count_}).to(tl::kInt64);
  }
  void run(std::int64_t epoch, const std::function<void(const Inputs&, std::int64_t)>& use) override {
    std::vector<std::int64_t> order(static_cast<std::size_t>(count_));
    if (options_.shuffle) order = tl::data::shuffled_indices(count_, options_.seed, static_cast<std::uint64_t>(epoch));
    else std::iota(order.begin(), order.end(), 0);
    const tl::Tensor numbers = tl::from_vector(order, {.device = options_.device});
    for (std::int64_t begin = 0; begin < count_; begin += options_.batch_size) {
      const std::int64_t size = std::min(options_.batch_size, count_ - begin);
      use({numbers.narrow(0, begin, size)}, size);
    }
  }
  tl::data::Batch get(const Inputs& inputs) const override {
    return {tl::index_select(data_, 0, inputs[0]), target_.defined() ? tl::index_select(target_, 0, inputs[0]) : tl::Tensor()};
  }

 private:
  std::int64_t count_;
  tl::data::DataLoaderOptions options_;
  tl::Tensor data_, target_;
};

}  // namespace

std::unique_ptr<Feed> make_feed(const Images& images, const Settings& settings, const Recipe& recipe, tl::Device device,
                                const FeedOptions& options) {
  tl::data::ImageOptions pixels{.mean = recipe.mean, .deviation = recipe.deviation};
  const tl::data::DataLoaderOptions order{.batch_size = options.batch,
                                          .shuffle = options.train,
                                          .seed = static_cast<std::uint64_t>(settings.seed),
                                          .workers = options.workers,
                                          .device = device};
  if (options.train && settings.augment) {
    pixels.augment = tl::data::AffineRanges{};
    pixels.seed = static_cast<std::uint64_t>(settings.seed);
  } else if (device.is_gpu()) {
    return std::make_unique<ResidentFeed>(*images, pixels, order);
  }
  return std::make_unique<LoaderFeed>(std::make_shared<tl::data::ImageDataset>(images, pixels), order);
}

}  // namespace mnist_cnn
