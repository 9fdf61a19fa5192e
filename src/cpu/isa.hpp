// The namespace of one instruction set's kernels. Every file of src/cpu but parallel.cpp and the selector is compiled once per set with
// -DTL_CPU_ISA=<set> -DEigen=Eigen_<set>; without TL_CPU_ISA it compiles alone, for the compiler's own target.
#pragma once

#if defined(TL_CPU_ISA)
#define TL_CPU_NS TL_CPU_ISA
#else
#define TL_CPU_NS native
#endif

// Eigen is used for its packets alone: its own threads and its aborting assertions stay off. Include this file before any of Eigen's.
#if !defined(EIGEN_DONT_PARALLELIZE)
#define EIGEN_DONT_PARALLELIZE
#endif
#define EIGEN_MPL2_ONLY
#define EIGEN_NO_DEBUG
#define EIGEN_FAST_MATH 0  // or sqrt is a rough one, wrong for infinity and subnormal numbers

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wignored-attributes"  // packets as template arguments
#if defined(__AVX512F__) && __GNUC__ < 14              // GCC's own avx512fintrin.h trips over its _mm512_undefined_ps()
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#endif
