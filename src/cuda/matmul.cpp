// matmul through cuBLASLt, which counts columns first: the row-major out = a * b is its out^T = b^T * a^T, so b is its A and a its B.
#include "cublas.hpp"
#include "gemm.hpp"
#include "measure.hpp"
#include "plan_key.hpp"
#include "state.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

namespace tensorlite::cuda {
namespace {

constexpr std::size_t kWorkspaceLimit = std::size_t(64) << 20;
constexpr int kMostAlgorithms = 8;  ///< measured by autotune

/// An operand as cuBLAS sees it: `rows` x `columns`, column-major with leading dimension ld, transposed or not.
struct Operand {
  std::int64_t rows = 0, columns = 0, ld = 0, batch_stride = 0;
  std::int32_t transposed = 0;
  std::uint32_t alignment = 16;
};

/// Everything that a plan depends on. Zeroed first.
struct PlanKey {
  Operand a, b;
  std::int64_t m, n, k, batches;
  std::uint32_t out_alignment;
  DType dtype;
  bool tf32, bias, relu;
  std::int32_t physical;
  bool measured;
  std::uint8_t unused[3];
};
/// A prepared product. `usable` is false where cuBLAS has no algorithm for it (kept, so that it is not asked again).
struct Plan {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, out = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
  std::size_t workspace = 0;
  bool usable = false;
};

/// The library, a handle per device and the plans made so far.
struct Products {
  Cublas cublas;
  std::mutex mutex;
  cublasLtHandle_t handles[kMaxPhysical] = {};
  PlanCache<PlanKey, Plan> plans;
};
Products& products() {
  static auto* instance = new Products;
  return *instance;
}

void check_blas(const char* op, const char* doing, cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string text = detail::concat("cuBLAS: ", doing, ": ", products().cublas.status_text(status));
  if (status == CUBLAS_STATUS_ALLOC_FAILED) throw OutOfMemoryError(op, text);
  throw BackendError(op, text);
}

std::uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  return static_cast<std::uint32_t>(std::min<std::uintptr_t>(address & (~address + 1), 256));
}

/// The matrix whose element (i, j) stands at i * row_stride + j * column_stride; false when it is not column- or row-major.
bool describe(const View& view, int row_axis, int column_axis, Operand& out) {
  const std::int64_t rows = view.size(row_axis), columns = view.size(column_axis);
  const std::int64_t row_stride = view.stride(row_axis), column_stride = view.stride(column_axis);
  out.alignment = alignment_of(view.data);
  out.batch_stride = view.size(0) == 1 ? 0 : view.stride(0);
  if (out.batch_stride < 0) return false;
  if ((rows == 1 || row_stride == 1) && (columns == 1 || column_stride >= rows)) {
    out.rows = rows, out.columns = columns, out.transposed = 0;
    out.ld = columns == 1 ? rows : column_stride;
    return true;
  }
  if ((columns == 1 || column_stride == 1) && (rows == 1 || row_stride >= columns)) {
    out.rows = columns, out.columns = rows, out.transposed = 1;
    out.ld = rows == 1 ? columns : row_stride;
    return true;
  }
  return false;
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::float64: return CUDA_R_64F;
    case DType::float16: return CUDA_R_16F;
    case DType::bfloat16: return CUDA_R_16BF;
    default: return CUDA_R_32F;
  }
}
cublasComputeType_t compute_type(const PlanKey& key) {
  if (key.dtype == DType::float64) return CUBLAS_COMPUTE_64F;
  return key.dtype == DType::float32 && key.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

cublasLtMatrixLayout_t make_layout(const char* op, cudaDataType_t type, const Operand& operand, std::int64_t batches) {
  const Cublas& blas = products().cublas;
  cublasLtMatrixLayout_t layout = nullptr;
  check_blas(
      op, "describing a matrix",
      blas.layout_create(&layout, type, static_cast<std::uint64_t>(operand.rows), static_cast<std::uint64_t>(operand.columns), operand.ld));
  const auto count = static_cast<std::int32_t>(batches);
  check_blas(op, "describing a matrix", blas.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
  check_blas(op, "describing a matrix",
             blas.layout_set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &operand.batch_stride, sizeof operand.batch_stride));
  return layout;
}

void describe_product(const char* op, const PlanKey& key, Plan& plan) {
  const Cublas& blas = products().cublas;
  const cudaDataType_t type = data_type(key.dtype), scale = key.dtype == DType::float64 ? CUDA_R_64F : CUDA_R_32F;
  check_blas(op, "describing a product", blas.desc_create(&plan.desc, compute_type(key), scale));
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    check_blas(op, "describing a product", blas.desc_set(plan.desc, attribute, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, key.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, key.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (key.bias) set(CUBLASLT_MATMUL_DESC_EPILOGUE, key.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS);
  else if (key.relu) set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU);
  plan.a = make_layout(op, type, key.a, key.batches);
  plan.b = make_layout(op, type, key.b, key.batches);
  Operand out;
  out.rows = key.m, out.columns = key.n, out.ld = key.m, out.batch_stride = key.m * key.n;
  plan.out = make_layout(op, type, out, key.batches);
}

cublasLtHandle_t handle_of(const Context& context) {
  cublasLtHandle_t& handle = products().handles[context.physical];
  if (!handle) check_blas(context.op, "creating a handle", products().cublas.create(&handle));
  return handle;
}

/// The best guesses for `plan`, the best first.
std::vector<cublasLtMatmulHeuristicResult_t> algorithms(const Context& context, cublasLtHandle_t handle, const PlanKey& key,
                                                        const Plan& plan, int most) {
  const Cublas& blas = products().cublas;
  cublasLtMatmulPreference_t preference = nullptr;
  check_blas(context.op, "choosing an algorithm", blas.preference_create(&preference));
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check_blas(context.op, "choosing an algorithm", blas.preference_set(preference, attribute, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceLimit);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.a.alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.b.alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.out_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.out_alignment);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  int found = 0;
  const cublasStatus_t status =
      blas.heuristic(handle, plan.desc, plan.a, plan.b, plan.out, plan.out, preference, most, results.data(), &found);
  blas.preference_destroy(preference);
  results.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<std::size_t>(found) : 0);
  std::erase_if(results, [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
  return results;
}

/// The views of one call.
struct Product {
  const View &out, &a, &b, &bias;
};

cublasStatus_t multiply(const Context& context, cublasLtHandle_t handle, const Plan& plan, const Product& product) {
  const float one = 1, zero = 0;
  const double one64 = 1, zero64 = 0;
  const bool wide = product.out.dtype == DType::float64;
  const void *alpha = wide ? static_cast<const void*>(&one64) : &one, *beta = wide ? static_cast<const void*>(&zero64) : &zero;
  void* out = product.out.data;
  const Workspace workspace(context, plan.workspace);
  return products().cublas.matmul(handle, plan.desc, alpha, product.b.data, plan.a, product.a.data, plan.b, beta, out, plan.out, out,
                                  plan.out, &plan.algorithm, workspace.data(), plan.workspace, stream_of(context));
}

void set_bias(const Context& context, const Plan& plan, const View& bias) {
  if (!bias.present) return;
  check_blas(context.op, "setting the bias",
             products().cublas.desc_set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias.data, sizeof bias.data));
}

Plan make_plan(const Context& context, cublasLtHandle_t handle, const PlanKey& key, const Product& product) {
  Plan plan;
  describe_product(context.op, key, plan);
  set_bias(context, plan, product.bias);
  const auto candidates = algorithms(context, handle, key, plan, key.measured ? kMostAlgorithms : 1);
  float best = 0;
  for (const cublasLtMatmulHeuristicResult_t& candidate : candidates) {
    Plan attempt = plan;
    attempt.algorithm = candidate.algo;
    attempt.workspace = candidate.workspaceSize;
    attempt.usable = true;
    if (!key.measured) return attempt;
    const auto run = [&] { return multiply(context, handle, attempt, product) == CUBLAS_STATUS_SUCCESS; };
    const float time = measure(context, run, plan.usable ? best : -1);
    log_info(detail::concat(context.op, " ", key.n, "x", key.m, "x", key.k, " algorithm ", &candidate - candidates.data(), ": ",
                            time * 1e3f, " us, workspace ", candidate.workspaceSize));
    if (time >= 0 && (!plan.usable || time < best)) {
      plan = attempt;
      best = time;
    }
  }
  return plan;
}

/// False when cuBLAS has no algorithm for this product as it stands.
bool run(const Context& context, PlanKey key, const Product& product) {
  Products& state = products();
  const std::lock_guard lock(state.mutex);  // a plan's description holds the bias of the call
  cublasLtHandle_t handle = handle_of(context);
  auto entry = state.plans.find(key);
  if (entry == state.plans.end() && key.measured && is_capturing(context)) {  // nothing can be measured now
    key.measured = false;
    entry = state.plans.find(key);
  }
  if (entry == state.plans.end()) entry = state.plans.emplace(key, make_plan(context, handle, key, product)).first;
  const Plan& plan = entry->second;
  if (!plan.usable) return false;
  set_bias(context, plan, product.bias);
  check_blas(context.op, "multiplying", multiply(context, handle, plan, product));
  check_launch(context);
  return true;
}

PlanKey key_of(const Context& context, const View& out, const Operand& a, const Operand& b, std::int64_t depth, bool bias, bool relu) {
  PlanKey key;
  std::memset(static_cast<void*>(&key), 0, sizeof key);
  key.a = b;
  key.b = a;
  key.m = out.size(2), key.n = out.size(1), key.k = depth, key.batches = out.size(0);
  key.out_alignment = alignment_of(out.data);
  key.dtype = out.dtype;
  key.tf32 = context.allow_tf32;
  key.bias = bias, key.relu = relu;
  key.physical = context.physical;
  key.measured = context.autotune && !context.deterministic;
  return key;
}

View dense_copy(const Context& context, const View& view, const Workspace& memory) {
  const View dense(memory.data(), view.dtype, view.device, view.sizes, contiguous_strides(view.sizes));
  copy(context, dense, view);
  return dense;
}

/// Several matrices times one are one tall matrix times it.
void join_batches(View& out, View& a, View& b) {
  const std::int64_t batches = out.size(0), m = out.size(1);
  if (batches == 1 || b.stride(0) != 0 || a.stride(0) != m * a.stride(1)) return;
  out.sizes = {1, batches * m, out.size(2)};
  out.strides = contiguous_strides(out.sizes);
  a.sizes = {1, batches * m, a.size(2)};
  b.sizes[0] = 1;
}

void floating_matmul(const Context& context, View out, View a, View b, const View& bias, Activation activation) {
  join_batches(out, a, b);
  Operand operand_a, operand_b;
  const bool copy_a = !describe(a, 2, 1, operand_a), copy_b = !describe(b, 2, 1, operand_b);
  const Workspace memory_a(context, copy_a ? static_cast<std::size_t>(a.nbytes()) : 0),
      memory_b(context, copy_b ? static_cast<std::size_t>(b.nbytes()) : 0);
  if (copy_a) describe(a = dense_copy(context, a, memory_a), 2, 1, operand_a);
  if (copy_b) describe(b = dense_copy(context, b, memory_b), 2, 1, operand_b);
  const std::int64_t depth = a.size(2);
  const bool relu = activation == Activation::relu;
  const auto plain = [&](bool with_bias, bool with_relu) {
    const PlanKey key = key_of(context, out, operand_a, operand_b, depth, with_bias, with_relu);
    return run(context, key, {out, a, b, with_bias ? bias : View{}});
  };
  // The library's GELU is the tanh formula; ours is exact and follows the product.
  if ((bias.present || relu) && plain(bias.present, relu)) {
    if (activation == Activation::gelu) add_bias(context, out, {}, activation);
    return;
  }
  if (!plain(false, false)) simple_matmul(context, out, a, b);
  add_bias(context, out, bias, activation);
}

}  // namespace

void matmul(const Context& context, const View& out, const View& a, const View& b, const View& bias, Activation activation) {
  if (out.numel() == 0) return;
  if (a.size(2) == 0) {
    fill(context, out, Scalar(0));
    return add_bias(context, out, bias, activation);
  }
  if (is_floating(out.dtype) && products().cublas.library.complete()) return floating_matmul(context, out, a, b, bias, activation);
  simple_matmul(context, out, a, b);
  add_bias(context, out, bias, activation);
}

}  // namespace tensorlite::cuda
