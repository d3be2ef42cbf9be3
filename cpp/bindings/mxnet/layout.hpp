// layout: the numbers of an array, row after row.
//
// oneDNN keeps arrays in its own layouts. An operation that only reads an array may cause another to change it: MXNet's
// convolutions do so with their weights, at any time, by an operation that they push while they run. So the layout is
// read inside the operation that holds the array, where it cannot change.
//
// Threads: any, inside an operation of MXNet's engine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bindings/mxnet/mx_api.hpp"

namespace ciranda::mxnet {

// The copies of data_to_read(), which live at least until the operation ends.
using Copies = std::vector<std::unique_ptr<OwnArray>>;

// Sets *data to the address of an array that the operation reads, or writes; null if empty. Returns the error, or "".
std::string data_to_read(ArrayHandle array, Copies& copies, void** data);
std::string data_to_write(ArrayHandle array, void** data);

}  // namespace ciranda::mxnet
