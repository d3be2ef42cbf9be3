// Collectives of a world of one: scale and copy.
#pragma once

#include "fuse/plan.hpp"
#include "kernels/kernels.hpp"

namespace ciranda {

void local_reduce(const Plan& plan, const kernels::Reduction& reduction);
void local_copy(const Plan& plan);

}  // namespace ciranda
