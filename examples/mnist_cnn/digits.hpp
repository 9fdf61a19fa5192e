// The digits that a run trains on, validates with and is tested by.
#pragma once

#include "recipe.hpp"

#include <tensorlite/data.hpp>

namespace mnist_cnn {

using Images = std::shared_ptr<const tensorlite::data::ImageSet>;

struct Digits {
  Images train, validation, test;  ///< validation may be the test set itself
  Images unlabelled;               ///< Kaggle's test.csv, else null
  std::string description;
};

/// Reads the bundled sample, --data or --kaggle. Throws IoError, ValueError (too few images to split).
Digits read_digits(const Settings& settings, const Recipe& recipe);

}  // namespace mnist_cnn
