// cuBLASLt, opened at the first matrix product.
#pragma once

#include "common.hpp"
#include "library.hpp"

#include <cublasLt.h>

namespace tensorlite::cuda {

// X(member, symbol)
#define TL_CUBLAS_FUNCTIONS(X)                           \
  X(create, cublasLtCreate)                              \
  X(status_text, cublasLtGetStatusString)                \
  X(matmul, cublasLtMatmul)                              \
  X(heuristic, cublasLtMatmulAlgoGetHeuristic)           \
  X(desc_create, cublasLtMatmulDescCreate)               \
  X(desc_destroy, cublasLtMatmulDescDestroy)             \
  X(desc_set, cublasLtMatmulDescSetAttribute)            \
  X(layout_create, cublasLtMatrixLayoutCreate)           \
  X(layout_destroy, cublasLtMatrixLayoutDestroy)         \
  X(layout_set, cublasLtMatrixLayoutSetAttribute)        \
  X(preference_create, cublasLtMatmulPreferenceCreate)   \
  X(preference_destroy, cublasLtMatmulPreferenceDestroy) \
  X(preference_set, cublasLtMatmulPreferenceSetAttribute)

struct Cublas {
  Library library{"libcublasLt.so.13"};
#define TL_CUBLAS_MEMBER(member, symbol) decltype(&::symbol) member = nullptr;
  TL_CUBLAS_FUNCTIONS(TL_CUBLAS_MEMBER)
#undef TL_CUBLAS_MEMBER
  Cublas() {
#define TL_CUBLAS_RESOLVE(member, symbol) library.resolve(member, #symbol);
    TL_CUBLAS_FUNCTIONS(TL_CUBLAS_RESOLVE)
#undef TL_CUBLAS_RESOLVE
    if (!library.complete()) log_warning("matrix products do without cuBLAS and are slower: " + library.problem());
  }
};

}  // namespace tensorlite::cuda
