// StoreServer: the rendezvous store of a job. The launcher hosts one; every rank goes there to find the others.
//
// Threads: one of its own, started by start(); the methods are for any thread. The destructor ends it.
// Failure: start() says which address could not be had. Afterwards strangers are refused one by one (with a line on
// stderr for the first few, unless on_refused is given), and what goes wrong in a rendezvous is told to its ranks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

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
  static Result<std::unique_ptr<StoreServer>> start(const StoreServerOptions& options);
  // start(), for callers with exceptions. `secret` is 32 bytes. Throws std::runtime_error.
  StoreServer(std::vector<std::string> bind, const std::string& secret, int size, std::string job,
              std::string port_range = "");
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  std::uint16_t port() const;
  // Ends all connections and the thread. Idempotent.
  void close();

 private:
  class Service;
  explicit StoreServer(std::unique_ptr<Service> service);

  std::unique_ptr<Service> service_;
};

}  // namespace ciranda
