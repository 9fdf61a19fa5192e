// Datasets in memory, and the threads that make batches ahead.
#include <tensorlite/data.hpp>
#include <tensorlite/ops/index.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

namespace tensorlite::data {

Dataset::~Dataset() = default;

// ------------------------------------------------------------------------------------------------------------- TensorDataset

namespace {

/// Rows of a tensor, copied byte by byte on the CPU (safe in any thread and quick for small batches), by an op on a GPU.
Tensor take_rows(const Tensor& tensor, std::span<const std::int64_t> indices) {
  Dims sizes = tensor.sizes();
  const std::int64_t rows = sizes[0], count = static_cast<std::int64_t>(indices.size());
  for (const std::int64_t i : indices)
    TL_CHECK(i >= 0 && i < rows, IndexError, "TensorDataset", "index ", i, " is outside the ", rows, " samples");
  if (tensor.device().is_gpu()) return index_select(tensor, 0, from_span(indices, {count}, {.device = tensor.device()}));
  sizes[0] = count;
  Tensor taken = empty(sizes, {.dtype = tensor.dtype(), .device = tensor.device()});
  const auto row_bytes = static_cast<std::size_t>(rows > 0 ? tensor.nbytes() / rows : 0);
  auto* to = static_cast<char*>(taken.raw().data);
  const auto* from = static_cast<const char*>(tensor.raw().data);
  if (row_bytes > 0)
    for (const std::int64_t i : indices) {
      std::memcpy(to, from + static_cast<std::size_t>(i) * row_bytes, row_bytes);
      to += row_bytes;
    }
  return taken;
}

}  // namespace

TensorDataset::TensorDataset(const Tensor& data, const Tensor& target) : data_(data.detach().contiguous()) {
  TL_CHECK(data.dim() > 0, ShapeError, "TensorDataset", "the data need a first axis of samples, they are 0-d");
  if (!target.defined()) return;
  TL_CHECK(target.dim() > 0 && target.size(0) == data.size(0), ShapeError, "TensorDataset", "data ", data.sizes(), " and target ",
           target.sizes(), " must have the same number of samples");
  target_ = target.detach().contiguous();
}

std::int64_t TensorDataset::size() const { return data_.size(0); }

Batch TensorDataset::get(std::span<const std::int64_t> indices, std::int64_t) const {
  return {take_rows(data_, indices), target_.defined() ? take_rows(target_, indices) : Tensor()};
}

// -------------------------------------------------------------------------------------------------------------- ImageDataset

ImageDataset::ImageDataset(std::shared_ptr<const ImageSet> images, const ImageOptions& options)
    : images_(std::move(images)), options_(options) {
  TL_CHECK(options.deviation != 0, ValueError, "ImageDataset", "the deviation must not be 0");
}

Batch ImageDataset::get(std::span<const std::int64_t> indices, std::int64_t epoch) const {
  const ImageSet& images = *images_;
  const auto count = static_cast<std::int64_t>(indices.size());
  Batch batch{empty({count, images.height, images.width, 1}, {.dtype = kFloat32, .device = cpu_device()}), Tensor()};
  const auto scale = static_cast<float>(1 / (255 * options_.deviation)), shift = static_cast<float>(-options_.mean / options_.deviation);
  const auto pixels = static_cast<std::size_t>(images.height * images.width);
  std::span<float> out(batch.data.data<float>(), indices.size() * pixels);
  for (const std::int64_t i : indices) {
    TL_CHECK(i >= 0 && i < images.count, IndexError, "ImageDataset", "index ", i, " is outside the ", images.count, " images");
    const auto image = images.image(i);
    const auto place = out.first(pixels);
    if (options_.augment)
      warp_affine(image, images.height, images.width,
                  random_affine(*options_.augment, images.height, images.width, options_.seed, epoch, i), place);
    else std::copy(image.begin(), image.end(), place.begin());
    for (float& value : place) value = value * scale + shift;
    out = out.subspan(pixels);
  }
  if (images.labels.empty()) return batch;
  batch.target = empty({count}, {.dtype = kInt64, .device = cpu_device()});
  auto* labels = batch.target.data<std::int64_t>();
  for (const std::int64_t i : indices) *labels++ = images.labels[static_cast<std::size_t>(i)];
  return batch;
}

// ---------------------------------------------------------------------------------------------------------------- DataLoader

/// One pass over a dataset. Batch i goes to slot i % queue, and is begun only when the batch before it in that slot was taken: that is
/// what bounds the queue and keeps the order.
class LoaderEpoch {
 public:
  LoaderEpoch(const Dataset& dataset, const DataLoaderOptions& options, std::int64_t epoch, std::int64_t batches)
      : dataset_(dataset), options_(options), epoch_(epoch), batches_(batches), slots_(static_cast<std::size_t>(options.queue)) {
    if (options.shuffle) order_ = shuffled_indices(dataset.size(), options.seed, static_cast<std::uint64_t>(epoch));
    else order_.resize(static_cast<std::size_t>(dataset.size())), std::iota(order_.begin(), order_.end(), 0);
    for (int i = 0; i < options.workers; ++i)
      threads_.emplace_back([this, scope = ScopeSnapshot()] {
        const auto guard = scope.enter();
        work();
      });
  }

  ~LoaderEpoch() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  /// The next batch; false at the end.
  bool take(Batch& batch) {
    if (taken_ == batches_) return false;
    if (threads_.empty()) {
      batch = make(taken_++);
    } else {
      std::unique_lock lock(mutex_);
      Slot& slot = slots_[static_cast<std::size_t>(taken_) % slots_.size()];
      changed_.wait(lock, [&] { return slot.full; });
      slot.full = false;
      batch = std::move(slot.batch);
      const std::exception_ptr error = std::exchange(slot.error, nullptr);
      ++taken_;
      lock.unlock();
      changed_.notify_all();
      if (error) std::rethrow_exception(error);
    }
    if (options_.device) {
      batch.data = batch.data.to(*options_.device);
      if (batch.target.defined()) batch.target = batch.target.to(*options_.device);
    }
    return true;
  }

 private:
  struct Slot {
    bool full = false;
    Batch batch;
    std::exception_ptr error;
  };

  Batch make(std::int64_t index) const {
    const std::int64_t begin = index * options_.batch_size;
    const auto size = std::min(options_.batch_size, static_cast<std::int64_t>(order_.size()) - begin);
    return dataset_.get(std::span(order_).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(size)), epoch_);
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (begun_ < batches_) {
      const std::int64_t index = begun_++;
      changed_.wait(lock, [&] { return stopped_ || index < taken_ + static_cast<std::int64_t>(slots_.size()); });
      if (stopped_) return;
      lock.unlock();
      Batch batch;
      std::exception_ptr error;
      try {
        batch = make(index);
      } catch (...) { error = std::current_exception(); }
      lock.lock();
      slots_[static_cast<std::size_t>(index) % slots_.size()] = {true, std::move(batch), error};
      changed_.notify_all();
    }
  }

  const Dataset& dataset_;
  const DataLoaderOptions& options_;
  std::int64_t epoch_, batches_;
  std::vector<std::int64_t> order_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Slot> slots_;
  std::int64_t begun_ = 0, taken_ = 0;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options)
    : dataset_(std::move(dataset)), options_(options) {
  TL_CHECK(options.batch_size > 0, ValueError, "DataLoader", "the batch size must be at least 1, it is ", options.batch_size);
  TL_CHECK(options.workers >= 0, ValueError, "DataLoader", "the number of workers must not be negative, it is ", options.workers);
  TL_CHECK(options.queue > 0, ValueError, "DataLoader", "the queue must hold at least 1 batch, it is ", options.queue);
}

DataLoader::~DataLoader() = default;

std::int64_t DataLoader::size() const {
  return (dataset_->size() + (options_.drop_last ? 0 : options_.batch_size - 1)) / options_.batch_size;
}

DataLoader::Iterator DataLoader::begin() {
  running_.reset();
  running_ = std::make_unique<LoaderEpoch>(*dataset_, options_, next_epoch_++, size());
  Iterator iterator;
  iterator.epoch_ = running_.get();
  return ++iterator;
}

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  if (!epoch_->take(batch_)) epoch_ = nullptr;
  return *this;
}

}  // namespace tensorlite::data
