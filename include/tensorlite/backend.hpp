// L1: what a backend is. TL_KERNELS (the list of kernels), the parameter structs they take, KernelTable, Context and Workspace,
// Backend and the plug-in entry, TL_CALL (the one choke point through which the front end reaches a kernel).
#pragma once

#include <tensorlite/base.hpp>
#include <tensorlite/elementwise.hpp>

namespace tensorlite {

// --------------------------------------------------------------------------------------------------------- kernel parameters
// Trivially copyable; sizes and paddings are those of the kernel's own layout (NHWC), so a kernel never reinterprets them.

/// A number typed by the user: integers stay exact, `is_integer` says which member holds the value as written (both are set).
struct Scalar {
  double real = 0;
  std::int64_t integer = 0;
  bool is_integer = false;
  constexpr Scalar() = default;
  template <class T>
  requires(std::is_arithmetic_v<T>) constexpr Scalar(T v) : real(static_cast<double>(v)), is_integer(std::is_integral_v<T>) {
    if constexpr (std::is_integral_v<T>) integer = static_cast<std::int64_t>(v);
    else integer = v >= -9.2e18 && v <= 9.2e18 ? static_cast<std::int64_t>(v) : 0;
  }
  template <class T> TL_HOST_DEVICE constexpr T as() const {
    if constexpr (std::is_same_v<T, bool>) return is_integer ? integer != 0 : real != 0;
    else if constexpr (std::is_integral_v<T>) return static_cast<T>(integer);
    else return static_cast<T>(static_cast<float>(real));
  }
};
template <> TL_HOST_DEVICE constexpr double Scalar::as<double>() const { return is_integer ? static_cast<double>(integer) : real; }

/// Which side of a binary operation the scalar stands on: right is `x - s`, left is `s - x`.
enum class ScalarSide : std::uint8_t { right, left };

enum class ReduceOp : std::uint8_t { sum, mean, prod, max, min, any, all, norm2, var, logsumexp };
enum class ArgOp : std::uint8_t { argmax, argmin };

/// What a fused kernel does to its result before it stores it.
enum class Activation : std::uint8_t { none, relu, gelu };

struct ConvParams {
  std::int64_t stride[2] = {1, 1};         ///< h, w
  std::int64_t dilation[2] = {1, 1};       ///< h, w
  std::int64_t padding[4] = {0, 0, 0, 0};  ///< top, bottom, left, right: zeros around the input
  std::int64_t groups = 1;
};

struct PoolParams {
  std::int64_t kernel[2] = {1, 1};
  std::int64_t stride[2] = {1, 1};
  std::int64_t dilation[2] = {1, 1};       ///< max pooling only
  std::int64_t padding[4] = {0, 0, 0, 0};  ///< top, bottom, left, right: never wins a maximum
  bool count_include_pad = true;           ///< average pooling: divide by the window including padding (never what hangs over it)
  bool adaptive = false;                   ///< average pooling: window i covers [floor(i*H/OH), ceil((i+1)*H/OH))
};

enum class RandomKind : std::uint8_t { uniform, normal, integers };

/// Names one draw of Philox4x32-10: key = seed, counter = (element index / 4, offset). See detail/philox.hpp.
struct PhiloxKey {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
};

enum class OptimizerKind : std::uint8_t { sgd, adam, rmsprop, adadelta };

/// One step's hyperparameters; the front end fills what its kind uses. PyTorch's formulas; `keras` selects Keras's (models' recipes).
struct OptimizerParams {
  double lr = 0, weight_decay = 0, eps = 0;
  double momentum = 0, dampening = 0;  ///< sgd, rmsprop
  double beta1 = 0, beta2 = 0;         ///< adam; rmsprop's alpha and adadelta's rho are beta2
  std::int64_t step = 0;               ///< 1 for the first step
  bool nesterov = false, amsgrad = false, decoupled_decay = false, centered = false, maximize = false, keras = false;
  double grad_scale = 1;  ///< multiplies every gradient first (clipping, loss scaling)
};

/// Class-index cross-entropy, fused with log-softmax.
struct CrossEntropyParams {
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
};

/// The step of a recurrent layer. gru: the reset gate multiplies the state's product with the weights (PyTorch, cuDNN);
/// gru_reset_before: the state itself (Keras's reset_after=False).
enum class RnnKind : std::uint8_t { tanh, relu, lstm, gru, gru_reset_before };

struct CtcParams {
  std::int64_t blank = 0;
  bool logits = false;         ///< the gradient is that of the logits whose log-softmax the scores are
  bool zero_infinity = false;  ///< a target without an alignment has loss 0 instead of infinity; its gradient is 0 either way
};

// -------------------------------------------------------------------------------------------------------- Context, Workspace

/// What a kernel may use besides its views.
struct Context {
  const char* op = "";         ///< TensorFlow's name of the running op, for error texts: throw ShapeError(context.op, "...")
  Device device;               ///< the logical device
  int physical = 0;            ///< the backend's own ordinal of it
  void* stream = nullptr;      ///< native stream; work is ordered on it
  bool deterministic = false;  ///< throw rather than give results that change from run to run
  bool allow_tf32 = false;
  bool autotune = false;
  /// The graph that this call is recorded into, null when it runs at once: see Backend::begin_graph. A kernel then waits for nothing, and
  /// takes its PhiloxKey's offset and its OptimizerParams not from the call but from what each run of the graph is given.
  void* graph = nullptr;
  void* (*allocate)(Device, std::size_t bytes) = nullptr;  ///< from the device's pool; throws OutOfMemoryError
  void (*release)(Device, void*) = nullptr;
};

/// Scratch memory of one kernel call, from the pool of its device, given back (in stream order) when it goes out of scope.
class Workspace {
 public:
  Workspace(const Context& context, std::size_t bytes)
      : context_(context), data_(bytes ? context.allocate(context.device, bytes) : nullptr) {}
  ~Workspace() {
    if (data_) context_.release(context_.device, data_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  template <class T = void> T* data() const { return static_cast<T*>(data_); }

 private:
  const Context& context_;
  void* data_;
};

// ------------------------------------------------------------------------------------------------------------------ the list
// X(name, (parameters after the Context)). Outputs come first, are allocated by the front end and never overlap inputs unless said.
// Layout contracts: "any" = any strides (0 and negative included); "dense" = contiguous, the front end has seen to it.
// clang-format off
#define TL_KERNELS(X)                                                                                                              \
  /* Elementwise. Same sizes in all views (the front end has broadcast: stride 0); any strides; out may be an input itself. */     \
  X(copy, (const View& out, const View& in)) /* with conversion */                                                                \
  X(fill, (const View& out, Scalar value))                                                                                         \
  X(arange, (const View& out, Scalar start, Scalar step)) /* dense 1-D: start + i * step */                                        \
  X(unary, (UnaryOp op, const View& out, const View& in, UnaryParams params))                                                     \
  X(unary_backward, (UnaryOp op, const View& grad_in, const View& grad_out, const View& in, const View& result, UnaryParams params)) \
  X(binary, (BinaryOp op, const View& out, const View& a, const View& b)) /* a, b one dtype; comparisons give bool */              \
  X(binary_scalar, (BinaryOp op, const View& out, const View& a, Scalar b, ScalarSide side))                                      \
  X(where, (const View& out, const View& condition, const View& a, const View& b))                                                \
  /* Reductions. axes: bit i = axis i of `in`; out is dense with size 1 on those axes. `correction`: var only. in: any. */         \
  X(reduce, (ReduceOp op, const View& out, const View& in, std::uint32_t axes, double correction))                                \
  X(arg_reduce, (ArgOp op, const View& out, const View& in, int axis)) /* out int64, dense, size 1 on axis; first NaN wins */      \
  X(cumsum, (const View& out, const View& in, int axis)) /* out dense; in any */                                                   \
  /* Linear algebra. out[b] = activation(a[b] * b[b] + bias), 3-D: [B,M,K] x [B,K,N]; out dense, a and b any strides; bias absent or dense [N]. */ \
  X(matmul, (const View& out, const View& a, const View& b, const View& bias, Activation activation))                             \
  /* Convolution, cross-correlation: dense NHWC images, dense OHWI weights [O,KH,KW,C/groups], bias absent or [O]. */              \
  X(conv2d, (const View& out, const View& in, const View& weight, const View& bias, ConvParams params, Activation activation))    \
  X(conv2d_backward_input, (const View& grad_in, const View& grad_out, const View& weight, ConvParams params))                    \
  X(conv2d_backward_weight, (const View& grad_weight, const View& grad_bias, const View& grad_out, const View& in, ConvParams params)) /* grad_bias may be absent */ \
  /* Pooling, dense NHWC. indices: int32, h * W + w of the winner (first maximum; a NaN wins), absent when not needed. */          \
  X(max_pool2d, (const View& out, const View& indices, const View& in, PoolParams params))                                        \
  X(max_pool2d_backward, (const View& grad_in, const View& grad_out, const View& indices, PoolParams params))                     \
  X(avg_pool2d, (const View& out, const View& in, PoolParams params))                                                             \
  X(avg_pool2d_backward, (const View& grad_in, const View& grad_out, PoolParams params))                                          \
  /* Normalisation. in dense [rows, C]; statistics float32 (float64 for float64 input), dense [C] (batch) or [rows] (layer);       \
     weight, bias absent or dense; running statistics absent or dense, updated in place with the unbiased variance. */             \
  X(batch_norm, (const View& out, const View& mean, const View& inv_std, const View& running_mean, const View& running_var,        \
                 const View& in, const View& weight, const View& bias, double momentum, double eps))                              \
  X(batch_norm_backward, (const View& grad_in, const View& grad_weight, const View& grad_bias, const View& grad_out, const View& in, \
                          const View& weight, const View& mean, const View& inv_std))                                             \
  X(layer_norm, (const View& out, const View& mean, const View& inv_std, const View& in, const View& weight, const View& bias, double eps)) \
  X(layer_norm_backward, (const View& grad_in, const View& grad_weight, const View& grad_bias, const View& grad_out, const View& in, \
                          const View& weight, const View& mean, const View& inv_std))                                             \
  /* Softmax over the middle axis of dense [outer, n, inner]. */                                                                   \
  X(softmax, (const View& out, const View& in, bool log))                                                                          \
  X(softmax_backward, (const View& grad_in, const View& grad_out, const View& result, bool log))                                  \
  /* losses, log_sum_exp: dense [rows] of the logits' accumulation type; logits dense [rows, classes]; labels dense int64 [rows].   \
     A label outside [0, classes) that is not ignore_index throws IndexError naming it. Ignored rows: loss 0, gradient 0.         \
     grad_losses may also be one for all rows (stride 0). */       \
  X(cross_entropy, (const View& losses, const View& log_sum_exp, const View& logits, const View& labels, CrossEntropyParams params)) \
  X(cross_entropy_backward, (const View& grad_logits, const View& grad_losses, const View& logits, const View& log_sum_exp, const View& labels, CrossEntropyParams params)) \
  /* mean of dense losses [rows] over the rows whose label is not ignore_index, and 1 / their number: 0-d, of the losses' type. */  \
  X(mean_of_rows, (const View& mean, const View& share, const View& losses, const View& labels, std::int64_t ignore_index))        \
  /* CTC of scores [frames, N, classes], any strides but dense classes, float32 or float64. losses: dense [N] of that dtype; grad_scores:   \
     dense like scores, absent when not wanted: d losses[n] / d scores[:, n]. targets: dense int64 [N, labels]; lengths: dense int64 [N],  \
     absent: all. A label outside [0, classes) or the blank throws IndexError, a length out of range ValueError, naming it. */     \
  X(ctc_loss, (const View& losses, const View& grad_scores, const View& scores, const View& targets, const View& input_lengths,    \
               const View& target_lengths, CtcParams params))                                                                      \
  /* One recurrent layer of D = 1 or 2 directions (the second runs from the end), float32 or float64, given its input's product x[d] with \
     the weights: [steps, N, gates * H], any strides but dense gates; gates i f g o or r z n. w_hh[d]: dense [gates * H, H]; b_hh[d]: dense \
     [gates * H] or absent. h0, c0: dense [D, N, H] or absent (0). lengths: dense int64 [N] or absent (all); out of range throws ValueError. \
     out: [steps, N, D * H], strided like x, 0 past a row's length; h_n, c_n (lstm): dense [D, N, H], the state at the row's own end;      \
     kept: [D, steps, N, detail::rnn_kept(kind) * H], strided, for the gradient; absent when not wanted. */                        \
  X(rnn, (RnnKind kind, const View& out, const View& h_n, const View& c_n, const View& kept, std::span<const View> x,              \
          std::span<const View> w_hh, std::span<const View> b_hh, const View& h0, const View& c0, const View& lengths))            \
  /* grad_x, grad_r: [D, steps, N, gates * H] strided as kept, the gradients of x and of the recurrent product with its bias; grad_r is   \
     present for gru only, elsewhere they are equal. grad_h0, grad_c0 (lstm): dense [D, N, H]. grad_out (any strides but dense last),      \
     grad_h_n, grad_c_n (dense): absent for 0. */                                                                                  \
  X(rnn_backward, (RnnKind kind, const View& grad_x, const View& grad_r, const View& grad_h0, const View& grad_c0, const View& grad_out, \
                   const View& grad_h_n, const View& grad_c_n, const View& kept, std::span<const View> w_hh, const View& lengths)) \
  /* Indexing. index: int64, negative counts from the end, out of range throws IndexError (value, axis, size). in any; out dense. */ \
  X(gather, (const View& out, const View& in, const View& index, int axis))                                                       \
  X(scatter_add, (const View& out, const View& index, const View& src, int axis)) /* out += ; deterministic order */                \
  X(index_select, (const View& out, const View& in, const View& index, int axis)) /* index dense 1-D */                             \
  X(index_add, (const View& out, const View& index, const View& src, int axis)) /* out += ; deterministic order */                  \
  /* Random. out dense. uniform: [a, b); normal: mean a, deviation b; integers: [a, b). dropout: out = kept ? in / (1 - p) : 0. */   \
  X(random, (RandomKind kind, const View& out, PhiloxKey key, double a, double b))                                                \
  X(dropout, (const View& out, const View& in, double p, PhiloxKey key)) /* dense in and out; the mask depends on key and index only */ \
  /* Optimizers: every parameter in one call, updated in place; dense views; a gradient has its parameter's dtype, states too \
     but float32 for half parameters. state: 0 to 3 per parameter, those not in use absent,                                       \
     state s of parameter i at states[s * parameters.size() + i]: sgd {momentum}, adam {m, v, max v}, rmsprop {square, momentum, mean},  \
     adadelta {square, delta}. */                                                                                                 \
  X(optimizer_step, (OptimizerKind kind, std::span<const View> parameters, std::span<const View> gradients, std::span<const View> states, OptimizerParams params))
// clang-format on

#define TL_KERNEL_POINTER(name, parameters) void(*name) TL_WITH_CONTEXT parameters;
#define TL_WITH_CONTEXT(...) (const Context& context, __VA_ARGS__)
#define TL_KERNEL_DECLARATION(name, parameters) void name TL_WITH_CONTEXT parameters;
#define TL_KERNEL_ENTRY(name, parameters) .name = &name,
#define TL_KERNEL_TEXT(name, parameters) #name #parameters ";"

/// One function pointer per kernel. A backend declares its kernels with `TL_KERNELS(TL_KERNEL_DECLARATION)` in its namespace and fills
/// the table with `{TL_KERNELS(TL_KERNEL_ENTRY)}`: one that it forgot does not link.
struct KernelTable {
  TL_KERNELS(TL_KERNEL_POINTER)
};

/// Body of a kernel that a backend cannot have.
#define TL_UNSUPPORTED(context, why) \
  throw ::tensorlite::NotImplementedError((context).op, ::tensorlite::detail::concat("not available on ", (context).device, ": ", why))

// ------------------------------------------------------------------------------------------------------------------- Backend

/// What is known of one physical device before it is used. Texts are zero-terminated.
struct DeviceProperties {
  char name[128] = "";
  char uuid[48] = "";
  char pci_bus_id[32] = "";
  int compute_major = 0, compute_minor = 0;
  int multiprocessors = 0;
  int driver_version = 0, runtime_version = 0;  ///< CUDA's numbers: 13000 is 13.0
  std::int64_t total_memory = 0;                ///< bytes
  bool usable = true;
  char reason[256] = "";  ///< why not, when not usable
};

/// One finding of diagnose(): a layer ("driver", "runtime", "cuBLAS", "cuDNN", "cuDNN graph", "GPU 0"...) and what was found there.
struct Finding {
  std::string layer;
  bool ok = true;
  std::string built_for = {}, found = {}, path = {};
  std::string problem = {}, remedy = {};  ///< one sentence each; empty when ok
};

/// What may differ from one run of a graph to the next.
struct GraphInputs {
  PhiloxKey key;                                     ///< a recorded draw of offset n uses key.offset + n
  std::span<const OptimizerParams> optimizer_steps;  ///< one per recorded call of optimizer_step, in order
};

/// A set of devices with their memory, streams and kernels. Plain data: a plug-in fills one and needs no symbol of the core.
/// `physical` is the backend's own ordinal. Functions throw Error types on failure unless noted.
struct Backend {
  std::uint64_t abi_hash = 0;
  const char* name = "";
  KernelTable kernels = {};
  int (*device_count)() = nullptr;                                    ///< creates no context; never throws; 0 when there is no driver
  void (*properties)(int physical, DeviceProperties& out) = nullptr;  ///< creates no context
  void (*diagnose)(std::vector<Finding>& out) = nullptr;              ///< never throws; creates no context
  void (*initialize)(int physical) = nullptr;                         ///< context and library handles; called once, before memory is mapped
  void (*memory_info)(int physical, std::int64_t& free, std::int64_t& total) = nullptr;  ///< bytes as the driver sees them
  /// A new region of device memory, null when the driver refuses. When `contiguous_regions` is set successive regions may adjoin and the
  /// allocator merges across them. `reserve` is the most that this pool will ever map (its limit), asked for once per pool.
  void* (*map_memory)(int physical, std::size_t bytes, std::size_t reserve) = nullptr;
  void (*unmap_memory)(int physical, void* data, std::size_t bytes) = nullptr;
  std::size_t granularity = 256;             ///< of allocations
  std::size_t region_granularity = 2 << 20;  ///< of map_memory
  bool contiguous_regions = false;
  /// Copies bytes between two devices, one of which is this backend's; ordered after the stream's work; a copy to the host has
  /// finished on return. Physical ordinal -1 is host memory.
  void (*copy_bytes)(void* to, int to_physical, const void* from, int from_physical, std::size_t bytes, void* stream) = nullptr;
  void* (*current_stream)(int physical) = nullptr;  ///< of the calling thread
  void (*synchronize)(int physical) = nullptr;      ///< waits for all work; throws BackendError for a failed kernel

  // Graphs: work recorded once and run again and again. Null where the backend has none.
  /// From now on the calling thread's kernels on this device are recorded and not run; they come with Context::graph set to the result.
  void* (*begin_graph)(int physical) = nullptr;
  /// Ends the recording; the graph can be run.
  void (*end_graph)(void* graph) = nullptr;
  void (*run_graph)(void* graph, const GraphInputs& inputs) = nullptr;  ///< ordered after the stream's work
  /// Waits until its last run has ended; also gives up a recording that has not ended. Never throws.
  void (*destroy_graph)(void* graph) = nullptr;
};

namespace detail {
constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = 0xcbf29ce484222325u) {
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}
}  // namespace detail

/// Changes whenever a kernel, its parameters or a struct's size changes: a plug-in of another build is refused by it.
inline constexpr std::uint64_t kAbiHash = detail::fnv1a(TENSORLITE_VERSION TL_KERNELS(TL_KERNEL_TEXT)) ^ (sizeof(View) * 1000003u) ^
                                          (sizeof(Context) * 10007u) ^ (sizeof(Backend) * 101u);

/// A plug-in exports `extern "C" const Backend* tensorlite_backend()`; null with a reason in `*why` when it cannot serve.
using BackendEntry = const Backend* (*)(const char** why);
inline constexpr const char* kBackendEntry = "tensorlite_backend";

// ------------------------------------------------------------------------------------------------------------------- TL_CALL

namespace detail {
/// One op on its way to a kernel: where it runs and, when someone asked to know, why and what was copied for it.
struct OpPlace {
  const char* op;
  Device device;
};

/// The views among a kernel's arguments, for the placement log.
inline void collect_views(std::vector<View>& views, const View& view) {
  if (view) views.push_back(view);
}
inline void collect_views(std::vector<View>& views, std::span<const View> more) { views.insert(views.end(), more.begin(), more.end()); }
template <class Other> void collect_views(std::vector<View>&, const Other&) {}

/// One kernel call: looks up the device's table, fills the Context and counts; when someone listens it also reports the placement and
/// the time taken.
class TL_API KernelCall {
 public:
  explicit KernelCall(const OpPlace& place);
  ~KernelCall() {
    if (observed_) [[unlikely]]
      finish();
  }
  KernelCall(const KernelCall&) = delete;
  const KernelTable& kernels() const { return *kernels_; }
  const Context& context() const { return context_; }

  template <class... Params> void run(void (*KernelTable::*kernel)(const Context&, Params...), std::type_identity_t<Params>... arguments) {
    if (observed_) [[unlikely]] {
      std::vector<View> views;
      (collect_views(views, arguments), ...);
      report(views);
    }
    (kernels_->*kernel)(context_, arguments...);
  }

 private:
  void report(const std::vector<View>& views);
  void finish();

  const KernelTable* kernels_;
  Context context_;
  bool observed_ = false;
  std::int64_t start_ns_ = 0;
};
}  // namespace detail

/// TL_CALL(place, kernel, arguments...): runs `kernel` of place.device's backend.
#define TL_CALL(place, kernel, ...) ::tensorlite::detail::KernelCall(place).run(&::tensorlite::KernelTable::kernel, __VA_ARGS__)

}  // namespace tensorlite
