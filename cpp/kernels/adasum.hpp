// The arithmetic of adaptive summation (Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2020):
//
//   adasum(a, b) = (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b
//
// Orthogonal vectors are added, equal vectors are averaged.
//
// Vectors are float, or double for float64 tensors. Dot products are computed in double over blocks of kAdasumBlock
// elements, each block in a fixed order. So results depend neither on the instruction set nor on how the blocks are
// divided among ranks. Pure functions; any thread; no allocation.
//
// Called by collective/adasum.hpp.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.hpp"

namespace ciranda::kernels {

inline constexpr std::size_t kAdasumBlock = 8192;  // elements

struct Dots {
  double ab = 0;
  double aa = 0;
  double bb = 0;

  void add(const Dots& other) {
    ab += other.ab;
    aa += other.aa;
    bb += other.bb;
  }
};

// REQUIRES (dots, adasum): a and b have the same length.
Dots dots(std::span<const float> a, std::span<const float> b);
Dots dots(std::span<const double> a, std::span<const double> b);

// a = (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b. The spans may be a part of the vectors; `whole` has the dot products
// of the whole vectors. If one vector is zero, the result is the other vector.
void adasum(const Dots& whole, std::span<float> a, std::span<const float> b);
void adasum(const Dots& whole, std::span<double> a, std::span<const double> b);

// to = factor * from in float, rounded once. REQUIRES: dtype is float16, bfloat16 or float32; `from` has to.size()
// elements of that type. `from` may be `to`.
void widen(DataType dtype, const std::byte* from, double factor, std::span<float> to);
// to = factor * from, rounded to the dtype; NaNs become canonical. REQUIRES: as for widen().
void narrow(DataType dtype, std::span<const float> from, double factor, std::byte* to);
// values = factor * values.
void scale(double factor, std::span<double> values);

}  // namespace ciranda::kernels
