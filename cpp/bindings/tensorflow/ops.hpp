// ops: TensorFlow's ops: one for each collective, for any number of tensors, and one that returns ranks and sizes.
//
// Failure: returned as text; "" on success.
#pragma once

#include <string>

namespace ciranda::tensorflow {

// Defines all ops, and registers their kernels. Once in a process.
std::string register_ops();

}  // namespace ciranda::tensorflow
