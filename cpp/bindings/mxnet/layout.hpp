// layout: access to an array's elements in row-major order.
//
// oneDNN keeps arrays in its own layouts. Even an operation that only reads an array may cause a change of its layout:
// a running convolution of MXNet's pushes another operation that changes the layout of its weights, at any time. So the
// layout is checked inside the operation that holds the array, where it cannot change.
//
// Threads: any, inside an operation of MXNet's engine.
//
// Called by Held and Running.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bindings/mxnet/mx_api.hpp"

namespace ciranda::mxnet {

// The copies of data_to_read(), which live at least until the operation ends.
using Copies = std::vector<std::unique_ptr<OwnArray>>;

// Set *data to the address of an array that the operation reads or writes; null if it is empty. Return an error, or "".
std::string data_to_read(ArrayHandle array, Copies& copies, void** data);
std::string data_to_write(ArrayHandle array, void** data);

}  // namespace ciranda::mxnet
