// push: a collective as an operation of MXNet's engine, which runs it when the arrays that it reads and writes are
// free, and runs what needs its results afterwards.
//
// Threads: any. It takes `running`, which ends with the operation.
#pragma once

#include <memory>
#include <string>

#include "bindings/mxnet/running.hpp"

namespace ciranda::mxnet {

// Returns why it could not be pushed; "" if it was. With MXNet's naive engine, which hands no errors on, this waits for
// the end, and `report` has the message of a failure.
std::string push(std::unique_ptr<Running> running, std::string* report);

}  // namespace ciranda::mxnet
