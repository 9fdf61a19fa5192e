// Graphs: recorded by stream capture on a stream of their own, run on the device's.
#include "graph.hpp"
#include "launch.cuh"
#include "state.hpp"

#include <cstring>
#include <memory>

namespace tensorlite::cuda {
namespace {

constexpr const char* kOp = "capture";

thread_local Graph* t_recording = nullptr;

/// Travels with the launch, so that nothing on the host must wait until it was read.
struct Chunk {
  static constexpr std::size_t kBytes = 3840;
  unsigned char bytes[kBytes];
};
__global__ void __launch_bounds__(kThreads) write_kernel(const __grid_constant__ Chunk chunk, unsigned char* to, int count) {
  for (int i = threadIdx.x; i < count; i += kThreads) to[i] = chunk.bytes[i];
}

void write_block(const Graph& graph, cudaStream_t stream) {
  for (std::size_t done = 0; done < graph.contents.size(); done += Chunk::kBytes) {
    Chunk chunk;
    const std::size_t count = std::min(Chunk::kBytes, graph.contents.size() - done);
    std::memcpy(chunk.bytes, graph.contents.data() + done, count);
    write_kernel<<<1, kThreads, 0, stream>>>(chunk, graph.block + done, static_cast<int>(count));
    check(kOp, "preparing a run", cudaGetLastError());
  }
}

}  // namespace

Graph* recording_graph() { return t_recording; }

const void* next_step(const Context& context, OptimizerKind kind) {
  Graph* graph = graph_of(context);
  if (!graph) return nullptr;
  TL_CHECK(graph->steps.size() < Graph::kMostSteps, CaptureError, context.op, "a captured step may update at most ", Graph::kMostSteps,
           " groups of parameters");
  graph->steps.push_back(kind);
  return graph->block + Graph::kKeyBytes + (graph->steps.size() - 1) * kStepBytes;
}

void* begin_graph(int physical) {
  enter_device(kOp, physical);
  auto graph = std::make_unique<Graph>();
  graph->physical = physical;
  try {
    check(kOp, "allocating", cudaMalloc(&graph->block, Graph::kBlockBytes));
    check(kOp, "creating a stream", cudaStreamCreateWithFlags(&graph->stream, cudaStreamNonBlocking));
    // Relaxed: the pool may map memory meanwhile, which concerns the recording no more than any other work of the host.
    check(kOp, "beginning", cudaStreamBeginCapture(graph->stream, cudaStreamCaptureModeRelaxed));
  } catch (...) {
    destroy_graph(graph.release());
    throw;
  }
  graph->recording = true;
  t_recording = graph.get();
  return graph.release();
}

void end_graph(void* recorded) {
  Graph& graph = *static_cast<Graph*>(recorded);
  const DeviceState& state = enter_device(kOp, graph.physical);
  t_recording = nullptr;
  graph.recording = false;
  cudaGraph_t work = nullptr;
  check(kOp, "ending", cudaStreamEndCapture(graph.stream, &work));
  const cudaError_t status = cudaGraphInstantiate(&graph.exec, work, 0);
  cudaGraphDestroy(work);
  check(kOp, "making the graph", status);
  check(kOp, "uploading the graph", cudaGraphUpload(graph.exec, state.stream));
  graph.contents.assign(Graph::kKeyBytes + graph.steps.size() * kStepBytes, 0);
}

void run_graph(void* recorded, const GraphInputs& inputs) {
  Graph& graph = *static_cast<Graph*>(recorded);
  const DeviceState& state = enter_device(kOp, graph.physical);
  TL_CHECK(inputs.optimizer_steps.size() == graph.steps.size(), BackendError, kOp, graph.steps.size(), " optimizer steps were recorded, ",
           inputs.optimizer_steps.size(), " are given");
  std::memcpy(graph.contents.data(), &inputs.key, sizeof inputs.key);
  for (std::size_t i = 0; i < graph.steps.size(); ++i)
    write_step(graph.steps[i], inputs.optimizer_steps[i], graph.contents.data() + Graph::kKeyBytes + i * kStepBytes);
  write_block(graph, state.stream);
  check(kOp, "running the graph", cudaGraphLaunch(graph.exec, state.stream));
  if (index_failed(state)) throw_index_failure(graph.physical);  // after the launch: the steps that it counts have been done
}

void destroy_graph(void* recorded) {
  const std::unique_ptr<Graph> graph(static_cast<Graph*>(recorded));
  if (t_recording == graph.get()) t_recording = nullptr;
  if (cudaSetDevice(graph->physical) != cudaSuccess) return;  // the process ends
  if (graph->recording) {
    cudaGraph_t work = nullptr;
    cudaStreamEndCapture(graph->stream, &work);
    if (work) cudaGraphDestroy(work);
  }
  cudaStreamSynchronize(device_state(graph->physical).stream);
  if (graph->exec) cudaGraphExecDestroy(graph->exec);
  if (graph->stream) cudaStreamDestroy(graph->stream);
  if (graph->block) cudaFree(graph->block);
  cudaGetLastError();
}

}  // namespace tensorlite::cuda
