// L4: optimizers, learning-rate schedules, early stopping.
#pragma once

#include <tensorlite/optim/optimizer.hpp>
#include <tensorlite/optim/scheduler.hpp>
