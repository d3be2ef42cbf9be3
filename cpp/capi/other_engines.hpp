// other_engines: whether another copy of the library in this process has joined a world. Two engines are two worlds:
// names, errors and shutdown() of one mean nothing to the other, and their ranks wait for each other for ever.
#pragma once

#include "base/status.hpp"

namespace ciranda::capi {

// InvalidArgument, with the file of the other copy, if there is one. However it was loaded: preloaded, by a program
// that is linked with it, or by dlopen() with RTLD_LOCAL.
Status refuse_other_engines();

}  // namespace ciranda::capi
