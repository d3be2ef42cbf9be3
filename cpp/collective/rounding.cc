#include "collective/rounding.hpp"

#include <algorithm>
#include <vector>

#include "kernels/bfloat16_wire.hpp"

namespace ciranda {
namespace {

constexpr std::size_t kBlockCount = 1024;  // elements rounded at a time, so that they are still in the cache when used

}  // namespace

InParts::InParts(const Reduction& reduction) : of_part(reduction), of_all(reduction) {
  if (reduction.op == ReduceOp::kAverage) of_part.op = ReduceOp::kSum;
  of_part.postscale = of_all.prescale = 1.0;
}

void reduce_rounded(const Reduction& reduction, const Rounding& rounding, std::span<const std::byte* const> inputs,
                    std::span<std::byte> out) {
  if (!rounding.is_on()) return kernels::reduce(reduction, inputs, out);
  const InParts split(reduction);
  const auto n_together = static_cast<std::size_t>(rounding.n_together);
  const std::size_t n_parts = inputs.size() / n_together;
  constexpr std::size_t kBlockBytes = kBlockCount * sizeof(float);
  std::vector<std::byte> memory(n_parts * kBlockBytes);
  std::vector<const std::byte*> parts(n_parts);
  std::vector<const std::byte*> of_part(n_together);
  for (std::size_t at = 0; at < out.size(); at += kBlockBytes) {
    const auto result = out.subspan(at, std::min(kBlockBytes, out.size() - at));
    const std::size_t n = result.size() / sizeof(float);
    for (std::size_t part = 0; part < n_parts; ++part) {
      std::byte* to = memory.data() + part * kBlockBytes;
      parts[part] = to;
      for (std::size_t i = 0; i < n_together; ++i) of_part[i] = inputs[part * n_together + i] + at;
      if (!rounding.is_of_inputs()) kernels::reduce(split.of_part, of_part, to, n);
      kernels::round_to_bfloat16(rounding.is_of_inputs() ? of_part.front() : to, to, n);
    }
    kernels::reduce(rounding.is_of_inputs() ? reduction : split.of_all, parts, result);
    kernels::round_to_bfloat16(result);
  }
}

}  // namespace ciranda
