// Bootstrap: connects a rank that knows its number and the world's size to all others: builds its mesh.
//
// Each rank listens, exchanges addresses with all others through the store, connects to some of them at once, such that
// all are connected with each other (base/spanning_tree.hpp), and finds out with which it shares memory, and at what
// cost. A world of one needs neither store nor sockets.
//
// Called by connect(). Threads: blocks its caller; several ranks of one process may join at the same time, each on its
// own thread.
// Failure: Timeout with the missing ranks, Aborted if interrupted, InvalidArgument for errors that the user can correct
// (addresses, ports, secret), Mismatch if ranks were started with different settings, RanksLost if one ended meanwhile.
// Every message names the reporting rank, and the peer with host and address.
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
  // Names or addresses of the network interfaces to use, separated by commas: the connections of two ranks are spread
  // over them. Empty: the interface that reaches the store; loopback if all addresses of the store are loopback.
  std::string interface;
  bool use_shared_memory = true;
  std::optional<HostCosts> costs;                // of this host, sent to all ranks
  std::chrono::milliseconds measuring_limit{5};  // ends the measurements; costs not measured by then stay unknown
  std::chrono::milliseconds start_timeout{30000};
  std::chrono::milliseconds link_timeout = kLinkTimeout;  // see SocketMeshParts
  std::string shm_folder = "/dev/shm";
  std::function<void(const std::string&)> warn;  // empty: a line on stderr
  std::function<void(const std::string&)> tell;  // gets a line for what is tried again; empty: none
  std::function<bool()> interrupted;             // polled while waiting for others: true ends the wait with Aborted
};

// "10.0.0.1:4000,[fd00::1]:4000" -> its parts.
std::vector<std::string> split_candidates(const std::string& text);

Result<std::unique_ptr<Mesh>> join_world(const BootstrapOptions& options);

}  // namespace ciranda
