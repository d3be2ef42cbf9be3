// StoreClient: a rank's connection to the rendezvous store.
//
// Threads: one. Blocks, at most up to the limit given. Failure: every error says which addresses were tried and why
// none would do.
#pragma once

#include <string>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "membership/acceptor.hpp"
#include "membership/store_messages.hpp"
#include "membership/wait_limit.hpp"
#include "transport/socket_address.hpp"

namespace ciranda {

class StoreClient {
 public:
  // Tries all candidates ("addr:port") at once and keeps the first that proves to be the job's store; those that do not
  // answer are tried again until the limit. REQUIRES: credentials.epoch is 0.
  static Result<StoreClient> connect(const std::vector<std::string>& candidates, const Credentials& credentials,
                                     int rank, const WaitLimit& limit);

  // Everybody's blob for this key, by rank, as soon as all `size` have called this. Timeout names who did not come.
  Result<std::vector<Blob>> exchange(const std::string& key, int size, Blob blob, const WaitLimit& limit);

  // Tells the others at once why this rank will not come, instead of letting them wait for it. Best effort.
  void cannot_come(const std::string& key, int size, const std::string& why, const WaitLimit& limit);

  SocketAddress local_address() const { return SocketAddress::local_of(socket_.get()); }
  const std::vector<SocketAddress>& candidates() const { return candidates_; }

 private:
  StoreClient(UniqueFd socket, int rank, std::vector<SocketAddress> candidates)
      : socket_(std::move(socket)), rank_(rank), candidates_(std::move(candidates)) {}

  UniqueFd socket_;
  int rank_;
  std::vector<SocketAddress> candidates_;
};

}  // namespace ciranda
