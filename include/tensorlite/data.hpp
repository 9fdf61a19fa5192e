// L4: data sets. Readers of IDX (MNIST) and CSV (Kaggle) files, affine augmentation, Dataset and DataLoader.
#pragma once

#include <tensorlite/tensor.hpp>

#include <iterator>

namespace tensorlite::data {

// ------------------------------------------------------------------------------------------------------------------- readers

/// The values of one IDX file of unsigned bytes.
struct IdxArray {
  Dims sizes;
  std::vector<std::uint8_t> values;
};

/// Reads an IDX file of unsigned bytes with that many axes (3: images, 1: labels), packed with gzip or not, whatever its name says.
/// Throws IoError: not IDX, truncated (with both byte counts), gzip data that end early or fail their checksum.
TL_API IdxArray read_idx(const std::string& path, int axes);

/// Gray images in one block, row by row, 0..255 with 255 = ink; `labels` is empty when the file has none.
struct ImageSet {
  std::int64_t count = 0, height = 0, width = 0;
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;
  std::span<const std::uint8_t> image(std::int64_t i) const {
    return std::span(pixels).subspan(static_cast<std::size_t>(i * height * width), static_cast<std::size_t>(height * width));
  }
};

/// Reads a pair of IDX files. Throws IoError, also when the counts differ or a label is outside 0..num_classes-1.
TL_API ImageSet read_idx_images(const std::string& images_path, const std::string& labels_path, int num_classes = 10);

struct Mnist {
  ImageSet train, test;
};
/// Reads train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, each with or without .gz.
TL_API Mnist read_mnist(const std::string& folder);

/// What an empty CSV field becomes.
enum class EmptyField : std::uint8_t { error, nan };

struct CsvTable {
  std::vector<std::string> header;  ///< empty when the file has none
  std::int64_t rows = 0, columns = 0;
  std::vector<float> values;  ///< row by row
  float at(std::int64_t row, std::int64_t column) const { return values[static_cast<std::size_t>(row * columns + column)]; }
};

/// Reads comma-separated numbers. The first row is a header when none of its fields is a number. A UTF-8 byte-order mark, CRLF, blank
/// lines, spaces and quotes around a field are accepted, gzip too.
/// Throws IoError, naming row (the line in the file, from 1) and column (from 1): an empty field, not a number, a row of another length.
TL_API CsvTable read_csv(const std::string& path, EmptyField empty = EmptyField::error);

/// Reads Kaggle's train.csv (label and 784 pixels a row) or test.csv (784 pixels, no labels). Throws IoError as read_csv does, also for
/// pixels outside 0..255, labels outside 0..9 and other numbers of columns.
TL_API ImageSet read_kaggle_digits(const std::string& path);

/// The images at `indices`, in that order, with their labels.
TL_API ImageSet select_images(const ImageSet& images, std::span<const std::int64_t> indices);

/// 0..count-1 in an order that depends on seed and stream alone (Philox), the same on every machine.
TL_API std::vector<std::int64_t> shuffled_indices(std::int64_t count, std::uint64_t seed, std::uint64_t stream = 0);

// -------------------------------------------------------------------------------------------------------------- augmentation

/// Ranges of a random affine map, each drawn uniformly from -x..x (zoom: 1-x..1+x).
struct AffineRanges {
  double rotation_degrees = 10;
  double zoom = 0.1;   ///< of height and width, drawn apart
  double shift = 0.1;  ///< fractions of height and width, drawn apart, not rounded to pixels
};

/// Maps an output pixel to the input point it shows: row = m[0] r + m[1] c + m[2], column = m[3] r + m[4] c + m[5].
struct Affine {
  double m[6] = {1, 0, 0, 0, 1, 0};
};

/// rotation * shift * zoom about the centre (size / 2 - 0.5), as Keras composes it. Angle in degrees, shifts in pixels.
TL_API Affine affine_about_center(std::int64_t height, std::int64_t width, double rotation_degrees, double shift_rows, double shift_columns,
                                  double zoom_rows, double zoom_columns);

/// The map of one image: depends on (seed, epoch, index) alone, so the same for any number of workers.
TL_API Affine random_affine(const AffineRanges& ranges, std::int64_t height, std::int64_t width, std::uint64_t seed, std::int64_t epoch,
                            std::int64_t index);

/// Draws `input` through the map: bilinear, points outside take the nearest pixel of the edge. Values stay 0..255.
/// Shapes: both height x width.
TL_API void warp_affine(std::span<const std::uint8_t> input, std::int64_t height, std::int64_t width, const Affine& map,
                        std::span<float> output);

// ----------------------------------------------------------------------------------------------------- Dataset and DataLoader

/// Samples along the first axis. `target` is undefined when there are no labels.
struct Batch {
  Tensor data, target;
  std::int64_t size() const { return data.size(0); }
};

/// Something with numbered samples.
class TL_API Dataset {
 public:
  virtual ~Dataset();
  virtual std::int64_t size() const = 0;
  /// The samples at `indices` as one batch. Called from several threads at once; what is random in it may depend on index and epoch only.
  virtual Batch get(std::span<const std::int64_t> indices, std::int64_t epoch) const = 0;
};

/// Rows of tensors. Throws ShapeError when the first axes differ.
class TL_API TensorDataset : public Dataset {
 public:
  explicit TensorDataset(const Tensor& data, const Tensor& target = {});
  std::int64_t size() const override;
  Batch get(std::span<const std::int64_t> indices, std::int64_t epoch) const override;

 private:
  Tensor data_, target_;
};

struct ImageOptions {
  double mean = 0, deviation = 1;            ///< a pixel becomes (p / 255 - mean) / deviation
  std::optional<AffineRanges> augment = {};  ///< a new random map per image and epoch
  std::uint64_t seed = 0;                    ///< of those maps
};

/// Gray images, kept as bytes and made float32 batch by batch. Shapes: data [N, H, W, 1], target [N] (int64).
class TL_API ImageDataset : public Dataset {
 public:
  explicit ImageDataset(std::shared_ptr<const ImageSet> images, const ImageOptions& options = {});
  std::int64_t size() const override { return images_->count; }
  Batch get(std::span<const std::int64_t> indices, std::int64_t epoch) const override;

 private:
  std::shared_ptr<const ImageSet> images_;
  ImageOptions options_;
};

struct DataLoaderOptions {
  std::int64_t batch_size = 1;
  bool shuffle = false;  ///< a new order every epoch, from seed and epoch alone
  std::uint64_t seed = 0;
  int workers = 0;                    ///< threads that make batches ahead; 0: the calling thread makes each when it is asked for
  std::int64_t queue = 4;             ///< batches made ahead, at most
  bool drop_last = false;             ///< leave out a last batch that is not full
  std::optional<Device> device = {};  ///< batches are moved there; default: where the dataset makes them
};

class LoaderEpoch;

/// Batches of a dataset: `for (const auto& batch : loader)` is one epoch, and the next loop is the next epoch. Batches are the same for
/// any number of workers. An exception in a worker reaches the loop, at the batch that it belongs to; leaving a loop early is fine.
class TL_API DataLoader {
 public:
  /// Throws ValueError for a batch size or queue below 1, negative workers.
  DataLoader(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options);
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  class TL_API Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    const Batch& operator*() const { return batch_; }
    const Batch* operator->() const { return &batch_; }
    Iterator& operator++();
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) { return it.epoch_ == nullptr; }

   private:
    friend class DataLoader;
    LoaderEpoch* epoch_ = nullptr;  ///< null at the end
    Batch batch_;
  };
  /// Starts the next epoch and ends the one that may still run: its iterators must not be used any more.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

  /// Batches in an epoch.
  std::int64_t size() const;
  /// The epoch that the next loop runs, from 0.
  std::int64_t epoch() const { return next_epoch_; }
  void set_epoch(std::int64_t epoch) { next_epoch_ = epoch; }

 private:
  std::shared_ptr<const Dataset> dataset_;
  DataLoaderOptions options_;
  std::int64_t next_epoch_ = 0;
  std::unique_ptr<LoaderEpoch> running_;
};

}  // namespace tensorlite::data
