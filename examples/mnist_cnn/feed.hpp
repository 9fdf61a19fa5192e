// Where batches come from.
#pragma once

#include "digits.hpp"

#include <functional>

namespace mnist_cnn {

/// The batches of one set of digits. What a batch is told by (inputs) and what it is (get) are apart, so that a captured step can make the
/// batch itself.
class Feed {
 public:
  using Inputs = std::vector<tensorlite::Tensor>;
  virtual ~Feed() = default;
  /// Calls `use` with every batch of an epoch, in its order.
  virtual void run(std::int64_t epoch, const std::function<void(const Inputs& inputs, std::int64_t images)>& use) = 0;
  /// On the device: data [N, 28, 28, 1], target [N].
  virtual tensorlite::data::Batch get(const Inputs& inputs) const = 0;
};

struct FeedOptions {
  std::int64_t batch = 1;
  bool train = false;  ///< shuffled, and augmented when the settings say so
  int workers = 0;     ///< threads that make batches ahead, where the host makes them
};

/// On a GPU digits that are not augmented lie there ready for use, and a batch is a list of their numbers.
std::unique_ptr<Feed> make_feed(const Images& images, const Settings& settings, const Recipe& recipe, tensorlite::Device device,
                                const FeedOptions& options);

}  // namespace mnist_cnn
