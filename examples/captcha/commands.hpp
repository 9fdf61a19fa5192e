// What each subcommand does. All throw on failure.
#pragma once

#include "settings.hpp"

namespace captcha {

/// Draws the pictures 0..count-1 of a seed as 000000.png, 000001.png... and writes labels.csv ("file,text").
void generate(const GenerateSettings& settings);
void train(const TrainSettings& settings);
/// Prints accuracy, loss and the letters most often misread.
void evaluate(const EvaluateSettings& settings);
/// Prints "FILE: TEXT" for each picture.
void read(const ReadSettings& settings);

}  // namespace captcha
