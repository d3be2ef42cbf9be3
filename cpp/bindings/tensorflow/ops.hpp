// ops: the ops that TensorFlow gets: one a collective, of any number of tensors, and one that says who this process is.
//
// Failure: in words; "" if all is well.
#pragma once

#include <string>

namespace ciranda::tensorflow {

// Defines all ops, and registers their kernels. Once in a process.
std::string register_ops();

}  // namespace ciranda::tensorflow
