// StoreServer: the rendezvous store of a job. The launcher hosts one; every rank connects to it to find the others.
//
// Called by bindings/python/store_server.cc. Threads: start() starts a thread, which the destructor ends. Any thread
// may call the methods.
// Failure: the error of start() names the address on which listening failed. Afterwards each unauthenticated connection
// is refused (with a line on stderr for the first few, unless on_refused is given), and errors in a rendezvous are sent
// to its ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/exported.hpp"
#include "base/status.hpp"
#include "membership/handshake.hpp"
#include "membership/secret.hpp"

namespace ciranda {

struct StoreServerOptions {
  std::vector<std::string> bind;  // addresses without port: "127.0.0.1", "::1"
  std::string port_range;         // "4000-4100", or empty for any port; it is the same on all addresses
  Secret secret{};
  std::string job;
  int size = 1;
  std::chrono::milliseconds handshake_limit = kHandshakeLimit;
  std::function<void(const std::string&)> on_refused;  // from the server's thread
};

class StoreServer {
 public:
  CIRANDA_EXPORTED static Result<std::unique_ptr<StoreServer>> start(const StoreServerOptions& options);
  virtual ~StoreServer() = default;

  virtual std::uint16_t port() const = 0;
  // `rank` never arrives again: each rank that waits for it, now or later, gets RanksLost with the reason `why`.
  virtual void lose(std::uint32_t rank, std::string why) = 0;
  // Ends all connections and the thread. Idempotent.
  virtual void close() = 0;
};

}  // namespace ciranda
