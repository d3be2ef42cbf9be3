// Bootstrap: from "I am rank 2 of 4" to a mesh with everyone else.
//
// Each rank listens, tells the store where, learns where the others are (one exchange), connects with all of them at
// once, and finds out with whom it shares memory, and what that costs. A world of one needs neither store nor sockets.
//
// Threads: blocks its caller; several ranks of one process may join at the same time, each on its own thread.
// Failure: Timeout naming who did not come, Aborted when interrupted, InvalidArgument for what the user can correct
// (addresses, ports, secret), Mismatch when ranks were started differently, RanksLost when one ended meanwhile. Every
// message says which rank speaks and names peer, host and address.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/host_costs.hpp"
#include "base/status.hpp"
#include "membership/common_settings.hpp"
#include "membership/secret.hpp"
#include "transport/mesh.hpp"
#include "transport/socket.hpp"

namespace ciranda {

struct BootstrapOptions : CommonSettings {
  int rank = 0;
  int size = 1;
  std::vector<std::string> store;  // candidates, "addr:port"; see split_candidates()
  Secret secret{};
  std::string job;
  std::uint64_t epoch = 1;
  std::string host;        // label for messages; empty: the host's name
  std::string host_id;     // only ranks with equal ids try to share memory; empty: derived from kernel and user
  std::string port_range;  // "4000-4100"; empty: any port
  // Names or addresses of the network interfaces to use, by comma: the connections of two ranks are spread over them.
  // Empty: the one by which the store is reached; loopback where all of the store's addresses are loopback.
  std::string interface;
  bool use_shared_memory = true;
  std::optional<HostCosts> costs;                // for the others to know
  std::chrono::milliseconds measuring_limit{5};  // what is not measured by then stays unknown
  std::chrono::milliseconds start_timeout{30000};
  std::chrono::milliseconds link_timeout = kLinkTimeout;  // see SocketMeshParts
  std::string shm_folder = "/dev/shm";
  std::function<void(const std::string&)> warn;  // empty: a line on stderr
  std::function<bool()> interrupted;             // asked while others are waited for: true gives up, with Aborted
};

// "10.0.0.1:4000,[fd00::1]:4000" -> its parts.
std::vector<std::string> split_candidates(const std::string& text);

Result<std::unique_ptr<Mesh>> join_world(const BootstrapOptions& options);

}  // namespace ciranda
