// Pictures with their texts, in batches: drawn, or read from a folder.
#pragma once

#include "interpreter.hpp"

#include <tensorlite/data.hpp>

namespace captcha {

/// Shapes: data [N, height, width, 3] of bytes (a network gets them through to_input), target [N, 4] classes.
class Pictures : public tensorlite::data::Dataset {
 public:
  virtual std::string text(std::int64_t index) const = 0;
};

/// Pictures first, first + 1... of a generator; epoch e goes on where e - 1 ended, so no picture comes twice.
class DrawnPictures : public Pictures {
 public:
  DrawnPictures(std::shared_ptr<const Generator> generator, const Interpreter& interpreter, std::int64_t first, std::int64_t count);
  std::int64_t size() const override { return count_; }
  std::string text(std::int64_t index) const override { return generator_->text(first_ + index); }
  tensorlite::data::Batch get(std::span<const std::int64_t> indices, std::int64_t epoch) const override;

 private:
  std::shared_ptr<const Generator> generator_;
  Interpreter interpreter_;
  std::int64_t first_, count_;
};

/// What `captcha generate` leaves: labels.csv ("file,text") and the PNG files that it names. Batches have no target, texts may have any
/// length. Throws IoError: a line that is not "file,text", no lines; a picture of another size, when it is read.
class FolderPictures : public Pictures {
 public:
  FolderPictures(const std::string& folder, ImageSize size);
  std::int64_t size() const override { return static_cast<std::int64_t>(entries_.size()); }
  std::string text(std::int64_t index) const override { return entries_[static_cast<std::size_t>(index)].text; }
  tensorlite::data::Batch get(std::span<const std::int64_t> indices, std::int64_t epoch) const override;

 private:
  struct Entry {
    std::string path, text;
  };
  ImageSize size_;
  std::vector<Entry> entries_;
};

/// Room for `count` pictures, on the CPU.
tensorlite::Tensor empty_pictures(std::int64_t count, ImageSize size);
/// Bytes to float32 in 0..1, where they are.
tensorlite::Tensor to_input(const tensorlite::Tensor& pictures);

}  // namespace captcha
