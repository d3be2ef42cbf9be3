// Where the others shall reach this rank.
//
// Threads: plain function. Failure: InvalidArgument for an interface that is not there.
#pragma once

#include <string>
#include <vector>

#include "base/status.hpp"
#include "membership/store_client.hpp"
#include "transport/socket_address.hpp"

namespace ciranda {

// The interfaces of these names or addresses; where there are none, the one by which the store is reached, or would be
// from another host.
Result<std::vector<InterfaceAddress>> choose_interfaces(const std::vector<std::string>& names,
                                                        const StoreClient& store);

}  // namespace ciranda
