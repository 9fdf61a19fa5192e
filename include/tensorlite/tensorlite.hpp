// The whole of tensorlite: include this, or one of the headers it names.
#pragma once

#include <tensorlite/autocast.hpp>
#include <tensorlite/capture.hpp>
#include <tensorlite/ops/conv.hpp>
#include <tensorlite/ops/ctc.hpp>
#include <tensorlite/ops/elementwise.hpp>
#include <tensorlite/ops/index.hpp>
#include <tensorlite/ops/linalg.hpp>
#include <tensorlite/ops/loss.hpp>
#include <tensorlite/ops/norm.hpp>
#include <tensorlite/ops/pool.hpp>
#include <tensorlite/ops/random.hpp>
#include <tensorlite/ops/reduce.hpp>
#include <tensorlite/ops/rnn.hpp>
#include <tensorlite/ops/shape.hpp>
#include <tensorlite/nn.hpp>
#include <tensorlite/optim.hpp>
