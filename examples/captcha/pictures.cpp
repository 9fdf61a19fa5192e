#include "pictures.hpp"

#include "png_file.hpp"

#include <tensorlite/tensorlite.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace captcha {

namespace tl = tensorlite;
using tl::detail::concat;

tl::Tensor empty_pictures(std::int64_t count, ImageSize size) {
  return tl::empty({count, size.height, size.width, 3}, {.dtype = tl::kUInt8, .device = tl::cpu_device()});
}

tl::Tensor to_input(const tl::Tensor& pictures) { return pictures.to(tl::kFloat32) * (1.0 / 255); }

DrawnPictures::DrawnPictures(std::shared_ptr<const Generator> generator, const Interpreter& interpreter, std::int64_t first,
                             std::int64_t count)
    : generator_(std::move(generator)), interpreter_(interpreter), first_(first), count_(count) {}

tl::data::Batch DrawnPictures::get(std::span<const std::int64_t> indices, std::int64_t epoch) const {
  const ImageSize size = generator_->size();
  const tl::Tensor pictures = empty_pictures(static_cast<std::int64_t>(indices.size()), size);
  std::span<std::uint8_t> room(pictures.data<std::uint8_t>(), indices.size() * size.bytes());
  std::vector<std::string> texts;
  for (const std::int64_t i : indices) {
    texts.push_back(generator_->draw(first_ + epoch * count_ + i, room.first(size.bytes())).text);
    room = room.subspan(size.bytes());
  }
  return {pictures, interpreter_.encode(texts).classes};
}

FolderPictures::FolderPictures(const std::string& folder, ImageSize size) : size_(size) {
  const std::string labels = (std::filesystem::path(folder) / "labels.csv").string();
  const auto require = [&](bool good, const std::string& text) {
    if (!good) throw tl::IoError("read_labels", labels, text);
  };
  std::ifstream file(labels);
  require(file.good(), "cannot be read; a folder that captcha generate made has it");
  std::string line;
  for (std::int64_t number = 1; std::getline(file, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || (number == 1 && line == "file,text")) continue;
    const auto comma = line.find(',');
    require(comma != 0 && comma != std::string::npos && comma + 1 < line.size() && line.find(',', comma + 1) == std::string::npos,
            concat("line ", number, " is not 'file,text'"));
    entries_.push_back({(std::filesystem::path(folder) / line.substr(0, comma)).string(), line.substr(comma + 1)});
  }
  require(!entries_.empty(), "names no pictures");
}

tl::data::Batch FolderPictures::get(std::span<const std::int64_t> indices, std::int64_t) const {
  const tl::Tensor pictures = empty_pictures(static_cast<std::int64_t>(indices.size()), size_);
  std::uint8_t* room = pictures.data<std::uint8_t>();
  for (const std::int64_t i : indices) {
    const Picture picture = read_png(entries_[static_cast<std::size_t>(i)].path, size_);
    room = std::copy(picture.bytes.begin(), picture.bytes.end(), room);
  }
  return {pictures, {}};
}

}  // namespace captcha
