// What needs no other rank: the collectives of a world of one, and an allreduce whose inputs are here already.
#pragma once

#include <cstddef>
#include <span>

#include "collective/rounding.hpp"
#include "fuse/plan.hpp"
#include "kernels/kernels.hpp"

namespace ciranda {

void local_reduce(const Plan& plan, const kernels::Reduction& reduction);
// `inputs`: of all ranks, each in one piece; they are moved on.
void local_combine(const Plan& plan, const kernels::Reduction& reduction, const Rounding& rounding,
                   std::span<const std::byte*> inputs);
void local_copy(const Plan& plan);

}  // namespace ciranda
