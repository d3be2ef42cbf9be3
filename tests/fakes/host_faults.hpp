// Explains why a thread of the host was stopped that touched memory which is not the host's, or not yet.
#pragma once

namespace ciranda::fakes {

// From now on a fault at such an address ends the process with a report; any other is left to who handled it before.
void explain_host_faults();

}  // namespace ciranda::fakes
