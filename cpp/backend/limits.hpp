// The limits within which ranks agree on calls directly, of the settings and of how many ranks there are.
#pragma once

#include "base/agreement_limits.hpp"
#include "base/config.hpp"

namespace ciranda {

AgreementLimits agreement_limits(const Config& config, int n_ranks);

}  // namespace ciranda
