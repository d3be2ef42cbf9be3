#include "collective/local.hpp"

#include <array>

#include "collective/copy_pieces.hpp"
#include "collective/reduce_pieces.hpp"

namespace ciranda {

void local_reduce(const Plan& plan, const kernels::Reduction& reduction) {
  plan.output.for_range(0, plan.output.n_bytes(), [&](std::span<std::byte> part, std::size_t at) {
    const std::array inputs{plan.input_for(0).at(at).data()};  // input and output have the same pieces
    kernels::reduce(reduction, inputs, part);
  });
}

void local_combine(const Plan& plan, const kernels::Reduction& reduction, const Rounding& rounding,
                   std::span<const std::byte*> inputs) {
  reduce_pieces(reduction, inputs, plan.output, {0, plan.n_bytes}, rounding);
}

void local_copy(const Plan& plan) {
  copy_pieces(plan.input_for(0), plan.output_by_rank.empty() ? plan.output : plan.output_by_rank.front());
}

}  // namespace ciranda
