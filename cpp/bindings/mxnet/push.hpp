// push: a collective as an operation of MXNet's engine, which runs it when the arrays that it reads and writes are
// free, and then runs operations that need its results.
//
// Threads: any. Ownership: takes `running`, which ends with the operation.
//
// Called by plugin.cc.
#pragma once

#include <memory>
#include <string>

#include "bindings/mxnet/running.hpp"

namespace ciranda::mxnet {

// Returns the reason if it could not be pushed, else "". With MXNet's naive engine, which does not propagate errors,
// this blocks until the operation is done, and `report` gets the message of a failure.
std::string push(std::unique_ptr<Running> running, std::string* report);

}  // namespace ciranda::mxnet
