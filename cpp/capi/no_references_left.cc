#include "capi/references_left.hpp"

namespace ciranda::capi {

void tell_references_left(const ciranda_context&) {}

bool tells_references_left() { return false; }

}  // namespace ciranda::capi
