// L4: networks: the module tree, layers, initialisers, summary.
#pragma once

#include <tensorlite/nn/layers.hpp>
#include <tensorlite/nn/recurrent.hpp>
#include <tensorlite/nn/sequential.hpp>
#include <tensorlite/nn/stateless.hpp>
#include <tensorlite/nn/summary.hpp>
