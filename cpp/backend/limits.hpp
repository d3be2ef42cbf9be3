// The limits within which ranks agree on calls directly, by the settings.
#pragma once

#include "base/agreement_limits.hpp"
#include "base/config.hpp"

namespace ciranda {

AgreementLimits agreement_limits(const Config& config);

}  // namespace ciranda
