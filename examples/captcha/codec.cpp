#include "codec.hpp"

#include <algorithm>

namespace captcha {

namespace {

/// Letters that only stand for bytes outside ASCII are shown by number.
std::string shown(char letter) {
  if (letter >= ' ' && letter <= '~') return std::string("'") + letter + "'";
  return tensorlite::detail::concat("byte ", static_cast<int>(static_cast<unsigned char>(letter)));
}

}  // namespace

std::vector<std::int64_t> Codec::encode(std::string_view text) const {
  std::vector<std::int64_t> classes;
  for (const char letter : text) {
    const auto at = alphabet_.find(letter);
    TL_CHECK(at != std::string::npos, ValueError, "encode", "the label '", text, "' has ", shown(letter),
             ", which is not among the letters ", alphabet_);
    classes.push_back(static_cast<std::int64_t>(at) + shift());
  }
  return classes;
}

std::string Codec::decode(std::span<const std::int64_t> classes) const {
  std::string text;
  for (const std::int64_t c : classes)
    if (c != blank()) text += alphabet_.at(static_cast<std::size_t>(c - shift()));
  return text;
}

std::vector<std::pair<char, char>> aligned(std::string_view truth, std::string_view read) {
  std::vector<std::pair<char, char>> pairs;
  if (truth.size() == read.size()) {
    for (std::size_t i = 0; i < truth.size(); ++i) pairs.emplace_back(truth[i], read[i]);
    return pairs;
  }
  // distance[i][j]: edits from the first i letters of the truth to the first j that were read.
  std::vector<std::vector<std::size_t>> distance(truth.size() + 1, std::vector<std::size_t>(read.size() + 1));
  for (std::size_t i = 0; i <= truth.size(); ++i)
    for (std::size_t j = 0; j <= read.size(); ++j) {
      if (i == 0 || j == 0) distance[i][j] = i + j;
      else
        distance[i][j] = std::min({distance[i - 1][j - 1] + (truth[i - 1] != read[j - 1]), distance[i - 1][j] + 1, distance[i][j - 1] + 1});
    }
  for (std::size_t i = truth.size(), j = read.size(); i > 0 || j > 0;) {
    if (i > 0 && j > 0 && distance[i][j] == distance[i - 1][j - 1] + (truth[i - 1] != read[j - 1])) {
      pairs.emplace_back(truth[--i], read[--j]);
    } else if (i > 0 && distance[i][j] == distance[i - 1][j] + 1) {
      pairs.emplace_back(truth[--i], '\0');
    } else {
      pairs.emplace_back('\0', read[--j]);
    }
  }
  std::reverse(pairs.begin(), pairs.end());
  return pairs;
}

}  // namespace captcha
