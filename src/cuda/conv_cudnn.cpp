// Convolutions by cuDNN: NHWC images and OHWI weights as they lie, plans cached by everything they depend on.
#include "conv.hpp"
#include "cudnn.hpp"
#include "gemm.hpp"
#include "measure.hpp"
#include "plan_key.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // the handle of graphs: wanted by every cuDNN 9 before 9.15

namespace tensorlite::cuda {

#if defined(TL_HAS_CUDNN)
namespace {

constexpr std::size_t kWorkspaceLimit = std::size_t(512) << 20;

enum Id : std::int64_t { kImage = 1, kWeight, kResult, kBias, kConvolved, kBiased };

/// Everything that a plan depends on.
struct ConvKey {
  std::int64_t image[4], weight[4], result[4];
  std::int64_t stride[2], dilation[2], padding[4];
  std::int32_t alignment, physical;
  ConvKind kind;
  DType dtype;
  Activation activation;
  bool bias, tf32, deterministic, measured;
  std::uint8_t unused;
};
PlanCache<ConvKey, CudnnPlan>& plan_cache() {
  static auto* cache = new PlanCache<ConvKey, CudnnPlan>;
  return *cache;
}

std::int64_t alignment_of(const View& view) {
  const auto address = reinterpret_cast<std::uintptr_t>(view.data);
  return address ? static_cast<std::int64_t>(std::min<std::uintptr_t>(address & (~address + 1), 16)) : 16;
}

ConvKey key_of(const Context& context, const Convolution& conv, const View& bias, Activation activation) {
  ConvKey key;
  std::memset(static_cast<void*>(&key), 0, sizeof key);
  for (int i = 0; i < 4; ++i) {
    key.image[i] = conv.image.size(i), key.weight[i] = conv.weight.size(i), key.result[i] = conv.result.size(i);
    key.padding[i] = conv.params.padding[i];
  }
  for (int i = 0; i < 2; ++i) key.stride[i] = conv.params.stride[i], key.dilation[i] = conv.params.dilation[i];
  key.alignment = static_cast<std::int32_t>(
      std::min({alignment_of(conv.image), alignment_of(conv.weight), alignment_of(conv.result), alignment_of(bias)}));
  key.physical = context.physical;
  key.kind = conv.kind;
  key.dtype = conv.image.dtype;
  key.activation = activation;
  key.bias = bias.present;
  key.tf32 = context.allow_tf32;
  key.deterministic = context.deterministic;
  const bool plain_float32 = key.dtype == DType::float32 && !key.tf32;  // cuDNN guesses badly there: up to twice the time of the best
  key.measured = (context.autotune || plain_float32) && !context.deterministic;
  return key;
}

cudnnDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::float64: return CUDNN_DATA_DOUBLE;
    case DType::float16: return CUDNN_DATA_HALF;
    case DType::bfloat16: return CUDNN_DATA_BFLOAT16;
    default: return CUDNN_DATA_FLOAT;
  }
}

/// cuDNN names sizes [N, C, H, W] whatever the strides: ours are those of NHWC (and KRSC).
Descriptor tensor(Id id, const std::int64_t (&nhwc)[4], cudnnDataType_t type, std::int64_t alignment, bool is_virtual = false) {
  const std::int64_t sizes[4] = {nhwc[0], nhwc[3], nhwc[1], nhwc[2]};
  const std::int64_t strides[4] = {nhwc[1] * nhwc[2] * nhwc[3], 1, nhwc[2] * nhwc[3], nhwc[3]};
  const std::int64_t name = id;
  Descriptor t(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  t.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, sizes)
      .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, name)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
  if (is_virtual) t.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
  t.finalize();
  return t;
}

Descriptor convolution(const ConvKey& key, cudnnDataType_t compute) {
  const std::int64_t before[2] = {key.padding[0], key.padding[2]}, after[2] = {key.padding[1], key.padding[3]}, dimensions = 2;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  Descriptor d(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  d.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, compute)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, mode)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, dimensions)
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, key.dilation)
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, key.stride)
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, before)
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, after)
      .finalize();
  return d;
}

/// The names of one direction's attributes.
struct Direction {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t alpha, beta, convolution, image, weight, result;
};
const Direction& direction_of(ConvKind kind) {
  static const Direction directions[] = {
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}};
  return directions[static_cast<int>(kind)];
}

/// Builds the graph of one key. The descriptors it is made of must outlive it, so they are kept with the plan.
class GraphBuilder {
 public:
  GraphBuilder(cudnnHandle_t handle, const ConvKey& key)
      : handle_(handle),
        key_(key),
        type_(data_type(key.dtype)),
        compute_(key.dtype == DType::float64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT) {}

  Descriptor build() {
    const bool fused = key_.bias || key_.activation != Activation::none;
    const Descriptor& image = keep(tensor(kImage, key_.image, type_, key_.alignment));
    const Descriptor& weight = keep(tensor(kWeight, key_.weight, type_, key_.alignment));
    const Descriptor& result = keep(tensor(kResult, key_.result, type_, key_.alignment));
    const Descriptor* last = fused ? &keep(tensor(kConvolved, key_.result, compute_, 16, true)) : &result;
    add_convolution(image, weight, *last);
    if (key_.bias) {
      const std::int64_t channels[4] = {1, 1, 1, key_.result[3]};
      const Descriptor& bias = keep(tensor(kBias, channels, type_, key_.alignment));
      const bool ends = key_.activation == Activation::none;
      const Descriptor& sum = ends ? result : keep(tensor(kBiased, key_.result, compute_, 16, true));
      add_pointwise(CUDNN_POINTWISE_ADD, *last, &bias, sum);
      last = &sum;
    }
    if (key_.activation == Activation::relu) add_pointwise(CUDNN_POINTWISE_RELU_FWD, *last, nullptr, result);
    Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle_)
        .set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(operations_.size()),
             operations_.data())
        .finalize();
    return graph;
  }
  std::vector<std::unique_ptr<Descriptor>> take_parts() { return std::move(parts_); }

 private:
  const Descriptor& keep(Descriptor&& descriptor) { return *parts_.emplace_back(std::make_unique<Descriptor>(std::move(descriptor))); }

  void add_convolution(const Descriptor& image, const Descriptor& weight, const Descriptor& result) {
    const Descriptor& settings = keep(convolution(key_, compute_));
    const Direction& names = direction_of(key_.kind);
    Descriptor operation(names.type);
    operation.set(names.convolution, settings).set(names.image, image).set(names.weight, weight).set(names.result, result);
    const float one = 1, zero = 0;
    const double one64 = 1, zero64 = 0;
    if (compute_ == CUDNN_DATA_DOUBLE) operation.set(names.alpha, CUDNN_TYPE_DOUBLE, one64).set(names.beta, CUDNN_TYPE_DOUBLE, zero64);
    else operation.set(names.alpha, CUDNN_TYPE_FLOAT, one).set(names.beta, CUDNN_TYPE_FLOAT, zero);
    operation.finalize();
    operations_.push_back(keep(std::move(operation)).raw());
  }

  void add_pointwise(cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor* b, const Descriptor& y) {
    Descriptor settings(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    settings.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode)
        .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, compute_)
        .finalize();
    const Descriptor& kept = keep(std::move(settings));
    Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kept).set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y).finalize();
    operations_.push_back(keep(std::move(operation)).raw());
  }

  cudnnHandle_t handle_;
  const ConvKey& key_;
  cudnnDataType_t type_, compute_;
  std::vector<std::unique_ptr<Descriptor>> parts_;
  std::vector<cudnnBackendDescriptor_t> operations_;
};

void execute(cudnnHandle_t handle, const CudnnPlan& plan, const Convolution& conv, const View& bias, void* workspace) {
  const std::array<void*, 5> addresses = {conv.image.data, conv.weight.data, conv.result.data, bias.data, workspace};
  if (!plan.pack || plan.addresses != addresses) {
    const std::int64_t ids[4] = {kImage, kWeight, kResult, kBias}, count = bias.present ? 4 : 3;
    auto pack = std::make_unique<Descriptor>(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack->set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids)
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, addresses.data())
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace)
        .finalize();
    plan.pack = std::move(pack);
    plan.addresses = addresses;
  }
  const cudnnStatus_t status = cudnn().execute(handle, plan.plan->raw(), plan.pack->raw());
  if (status != CUDNN_STATUS_SUCCESS) throw CudnnRefusal{status};
}

/// The sizes [c, kh, kw, o] of a weight turned by 180 degrees, image and result exchanged.
Dims turned_sizes(const View& weight) { return {weight.size(3), weight.size(1), weight.size(2), weight.size(0)}; }
void turn_weight(const Context& context, const View& to, const View& weight) {
  const std::int64_t kh = weight.size(1), kw = weight.size(2), c = weight.size(3);
  void* last = static_cast<char*>(weight.data) + (kh * kw - 1) * c * static_cast<std::int64_t>(size_of(weight.dtype));
  copy(context, to, View(last, weight.dtype, weight.device, to.sizes, Dims{1, -kw * c, -c, kh * kw * c}));
}

/// With stride 1 the forward convolution of an image is the input gradient of one with the turned kernel, and the other way round. False
/// where it is not.
bool turn(const Convolution& conv, ConvParams& params) {
  const View& w = conv.weight;
  if (conv.kind == ConvKind::backward_weight || params.groups != 1 || params.stride[0] != 1 || params.stride[1] != 1) return false;
  bool fits = true;
  for (int side = 0; side < 4; ++side) {
    const int axis = side / 2;
    params.padding[side] = params.dilation[axis] * (w.size(1 + axis) - 1) - params.padding[side];
    fits = fits && params.padding[side] >= 0;
  }
  return fits;
}
ConvKind opposite(ConvKind kind) { return kind == ConvKind::forward ? ConvKind::backward_input : ConvKind::forward; }

/// False when our own tiles are asked for and do not take this.
bool run_plan(const Context& context, cudnnHandle_t handle, const CudnnPlan& plan, const Convolution& conv, const View& bias,
              Activation activation) {
  const Workspace workspace(context, plan.workspace);
  const auto run = [&](const Convolution& c, const View& b, Activation a) {
    if (plan.own) return tile_convolution(context, c, b, a);
    execute(handle, plan, c, b, workspace.data());
    return true;
  };
  if (!plan.turned) return run(conv, bias, activation);
  ConvParams params = conv.params;
  turn(conv, params);
  const Workspace memory(context, static_cast<std::size_t>(conv.weight.nbytes()));
  const Dims sizes = turned_sizes(conv.weight);
  const View weight(memory.data(), conv.weight.dtype, conv.weight.device, sizes, contiguous_strides(sizes));
  turn_weight(context, weight, conv.weight);
  if (!run({opposite(conv.kind), conv.result, weight, conv.image, params}, {}, Activation::none)) return false;
  if (conv.kind == ConvKind::forward) add_bias(context, conv.result, bias, activation);
  return true;
}

/// One call of cudnn_convolution.
struct ConvCall {
  const Convolution& conv;
  const View& bias;
  Activation activation;
};

/// Milliseconds of the call by `plan`; negative when it fails.
float measure_plan(const Context& context, cudnnHandle_t handle, const CudnnPlan& plan, const ConvCall& call, float best) {
  try {
    return measure(
        context, [&] { return run_plan(context, handle, plan, call.conv, call.bias, call.activation); }, best);
  } catch (const CudnnRefusal&) {
  } catch (const OutOfMemoryError&) {}
  return -1;
}

/// The best plan for `key`, which is that of the call or of its turned convolution.
CudnnPlan make_plan(const Context& context, cudnnHandle_t handle, const ConvKey& key, const ConvCall& call, bool turned) {
  GraphBuilder builder(handle, key);
  const bool float32 = key.dtype == DType::float32;
  const PlanRules rules{.no_tensor_cores = float32 && !key.tf32,
                        .no_down_conversion = float32,
                        .deterministic = key.deterministic,
                        .workspace_limit = kWorkspaceLimit,
                        .most = context.autotune ? 8 : 5};
  std::function<float(CudnnPlan&, float)> time_plan;
  if (key.measured)
    time_plan = [&](CudnnPlan& plan, float best) {
      plan.turned = turned;
      return measure_plan(context, handle, plan, call, best);
    };
  CudnnPlan plan = find_plan(handle, builder.build(), rules, time_plan);
  for (auto& part : builder.take_parts()) plan.parts.push_back(std::move(*part));
  return plan;
}

/// The better of two plans that were measured, either of which may be none.
CudnnPlan faster(CudnnPlan&& a, CudnnPlan&& b) {
  const bool has_a = a.plan || a.own, has_b = (b.plan || b.own) && b.time >= 0;
  return has_b && (!has_a || b.time < a.time) ? std::move(b) : std::move(a);
}

/// The best guess, or the fastest of cuDNN's plans for both ways to compute the call and our own tiles.
CudnnPlan choose_plan(const Context& context, cudnnHandle_t handle, const ConvKey& key, const ConvCall& call) {
  CudnnPlan plan = make_plan(context, handle, key, call, false);
  if (!key.measured) return plan;
  const Convolution& conv = call.conv;
  ConvParams params = conv.params;
  const bool turns = turn(conv, params);
  if (turns) {
    const Dims sizes = turned_sizes(conv.weight);
    const View weight(nullptr, conv.weight.dtype, conv.weight.device, sizes, contiguous_strides(sizes));
    try {
      plan = faster(
          std::move(plan),
          make_plan(context, handle, key_of(context, {opposite(conv.kind), conv.result, weight, conv.image, params}, {}, Activation::none),
                    call, true));
    } catch (const CudnnRefusal&) {}  // it has no such convolution
  }
  CudnnPlan own;
  own.own = true;
  own.turned = conv.kind == ConvKind::backward_input;
  if (own.turned && !turns) return plan;
  own.time = measure_plan(context, handle, own, call, plan.plan ? plan.time : -1);
  log_info(detail::concat("own tiles: ", own.time * 1e3f, " us"));
  return faster(std::move(plan), std::move(own));
}

/// The cached plan; one without `plan` when cuDNN has none.
const CudnnPlan& plan_for(const Context& context, cudnnHandle_t handle, ConvKey key, const ConvCall& call) {
  auto entry = plan_cache().find(key);
  if (entry == plan_cache().end() && key.measured && is_capturing(context)) {  // nothing can be measured now
    key.measured = false;
    entry = plan_cache().find(key);
  }
  if (entry != plan_cache().end()) return entry->second;
  CudnnPlan plan;
  const auto begin = std::chrono::steady_clock::now();
  try {
    plan = choose_plan(context, handle, key, call);
  } catch (const CudnnRefusal& refusal) {
    const cudnnStatus_t status = refusal.status;
    if (status == CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH || status == CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED)
      cudnn().give_up(cudnn().status_text(status));
    log_debug(detail::concat(context.op, ": cuDNN says ", cudnn().status_text(status)));
  }
  log_info(detail::concat(context.op, " ", call.conv.image.sizes, " x ", call.conv.weight.sizes,
                          key.bias || key.activation != Activation::none ? " with epilogue" : "",
                          plan.own    ? ": own tiles"
                          : plan.plan ? ": a plan of cuDNN"
                                      : ": cuDNN has no plan",
                          plan.turned ? " for the opposite direction" : "", ", found in ",
                          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count(), " ms"));
  return plan_cache().emplace(key, std::move(plan)).first->second;
}

}  // namespace

bool cudnn_convolution(const Context& context, const Convolution& conv, const View& bias, Activation activation) {
  Cudnn& library = cudnn();
  const std::lock_guard lock(library.mutex);
  if (conv.image.numel() == 0 || conv.result.numel() == 0) return false;  // an empty batch
  cudnnHandle_t handle = library.handle(context);
  if (!handle) return false;
  const CudnnPlan& plan = plan_for(context, handle, key_of(context, conv, bias, activation), {conv, bias, activation});
  if (!plan.plan && !plan.own) return false;
  try {
    run_plan(context, handle, plan, conv, bias, activation);
  } catch (const CudnnRefusal& refusal) {
    throw BackendError(context.op, detail::concat("cuDNN (built for ", CUDNN_MAJOR, ".", CUDNN_MINOR, ", loaded ", library.version(),
                                                  " from ", library.library.path(), ") failed: ", library.status_text(refusal.status)));
  }
  check_launch(context);
  return true;
}

#else

bool cudnn_convolution(const Context&, const Convolution&, const View&, Activation) { return false; }

#endif

}  // namespace tensorlite::cuda
