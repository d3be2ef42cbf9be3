// The arithmetic of adaptive summation (Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2020):
//
//   adasum(a, b) = (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b
//
// It takes from each of two vectors what the other does not have already: orthogonal ones add up, equal ones average.
//
// Vectors are float, or double for float64 tensors. Dot products are formed in double over blocks of kAdasumBlock
// elements, each in a fixed order, so results do not depend on where a vector is cut between blocks, nor on the
// instruction set. Pure functions; any thread; no allocation.
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

// a = (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b, for a part of the vectors whose products are `whole`. A vector of
// zeros adds nothing and takes nothing away.
void adasum(const Dots& whole, std::span<float> a, std::span<const float> b);
void adasum(const Dots& whole, std::span<double> a, std::span<const double> b);

// to = factor * from, widened to float; rounded once. REQUIRES: dtype is float16, bfloat16 or float32; `from` has
// to.size() elements of it. `from` may be `to`.
void widen(DataType dtype, const std::byte* from, double factor, std::span<float> to);
// to = factor * from, rounded to the dtype. As above; the NaNs of `to` are canonical.
void narrow(DataType dtype, std::span<const float> from, double factor, std::byte* to);
// values = factor * values.
void scale(double factor, std::span<double> values);

}  // namespace ciranda::kernels
