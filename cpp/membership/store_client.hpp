// StoreClient: a rank's connection to the rendezvous store.
//
// Called by join_world(); one thread. Blocks until the limit at most. Failure: every error lists the addresses that
// were tried, with the reason why each failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "membership/acceptor.hpp"
#include "membership/sealed_messages.hpp"
#include "membership/store_messages.hpp"
#include "membership/wait_limit.hpp"
#include "transport/socket_address.hpp"

namespace ciranda {

class StoreClient {
 public:
  // Tries all candidates ("addr:port") at once and keeps the first that authenticates as the job's store. Tries those
  // that do not answer again until the limit. REQUIRES: credentials.epoch is 0.
  static Result<StoreClient> connect(const std::vector<std::string>& candidates, const Credentials& credentials,
                                     int rank, const WaitLimit& limit);

  // Returns all ranks' blobs for this key, by rank, as soon as all `size` ranks have called this. Timeout names the
  // missing ranks.
  Result<std::vector<Blob>> exchange(const std::string& key, int size, Blob blob, const WaitLimit& limit);

  // Fails these exchanges of the other ranks at once, with the reason why this rank cannot take part; those that have
  // completed one get the error by look(). Best effort.
  void withdraw(const std::vector<std::string>& keys, int size, const std::string& why, const WaitLimit& limit);

  // The error that the store has sent unasked, if any. Does not wait. REQUIRES: not during an exchange.
  Status look();

  SocketAddress local_address() const { return SocketAddress::local_of(socket_.get()); }
  const std::vector<SocketAddress>& candidates() const { return candidates_; }

 private:
  StoreClient(KeyedSocket socket, int rank, std::vector<SocketAddress> candidates)
      : socket_(std::move(socket.fd)), messages_(socket.keys), rank_(rank), candidates_(std::move(candidates)) {}

  Status send(const ExchangeRequest& request, const WaitLimit& limit);
  // The reply to an exchange among `size` ranks.
  Result<std::vector<std::byte>> receive(std::uint32_t size, const WaitLimit& limit);

  UniqueFd socket_;
  SealedMessages messages_;
  int rank_;
  std::vector<SocketAddress> candidates_;
};

}  // namespace ciranda
