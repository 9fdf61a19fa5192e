// Recorded graphs: what a kernel needs to know while it is recorded into one.
#pragma once

#include "common.hpp"

#include <vector>

namespace tensorlite::cuda {

/// Bytes that one recorded call of optimizer_step reads its factors from.
inline constexpr std::size_t kStepBytes = 256;

/// A graph of one device's work, and the device memory in which its kernels find what changes from run to run.
struct Graph {
  static constexpr std::size_t kMostSteps = 1024, kKeyBytes = 256, kBlockBytes = kKeyBytes + kMostSteps * kStepBytes;
  int physical = 0;
  cudaStream_t stream = nullptr;  ///< of the recording
  bool recording = false;
  cudaGraphExec_t exec = nullptr;
  unsigned char* block = nullptr;       ///< on the device: the key, then the steps
  std::vector<OptimizerKind> steps;     ///< recorded calls of optimizer_step
  std::vector<unsigned char> contents;  ///< of the block, for the next run
};
inline Graph* graph_of(const Context& context) { return static_cast<Graph*>(context.graph); }

/// The graph that the calling thread records, null when none.
Graph* recording_graph();

/// Where a kernel finds the key to which its own offset is to be added; null outside a recording, when its own key is all.
inline const PhiloxKey* base_key(const Context& context) {
  return context.graph ? reinterpret_cast<const PhiloxKey*>(graph_of(context)->block) : nullptr;
}
/// Takes the next place for an optimizer's factors; null outside a recording.
const void* next_step(const Context& context, OptimizerKind kind);
/// The factors, as optimizer_step's kernels read them: kStepBytes.
void write_step(OptimizerKind kind, const OptimizerParams& params, unsigned char* out);

// Members of Backend; see there.
void* begin_graph(int physical);
void end_graph(void* graph);
void run_graph(void* graph, const GraphInputs& inputs);
void destroy_graph(void* graph);

}  // namespace tensorlite::cuda
