// captcha generate
#pragma once

#include "settings.hpp"

namespace captcha {

/// Draws the pictures 0..count-1 of a seed as 000000.png, 000001.png... and writes labels.csv ("file,text"). Throws IoError.
void generate(const GenerateSettings& settings);

}  // namespace captcha
