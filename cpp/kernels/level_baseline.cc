// The kernels for the compiler's default instruction set: 16-byte vectors, fp16 by integer arithmetic.
#include "kernels/level_reduce.hpp"

namespace ciranda::kernels {
namespace {

struct Baseline {
  static constexpr std::size_t kVectorBytes = 16;
  using HalfCodec = HalfByBits<Baseline>;
};

}  // namespace

void reduce_baseline(const VectorJob& job) { reduce_level<Baseline>(job); }

}  // namespace ciranda::kernels
