// RingChannel: a Channel over two byte rings, one each way. Used in shared memory and, in tests, in private memory.
//
// Called by SocketMesh, which makes it; through Channel by its callers. Threads, failure: as Channel. The memory of the
// rings is not owned and must outlive the channel. Either side may call close(), as may any process that learns that a
// side is dead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/channel.hpp"
#include "transport/ring.hpp"
#include "transport/senders.hpp"
#include "transport/traffic.hpp"

namespace ciranda {

class RingChannel final : public Channel {
 public:
  // Where this side is to note that it has written, and as whom.
  struct Noted {
    Senders at_peer;
    int member = 0;
  };

  RingChannel(ByteRing outgoing, ByteRing incoming, std::optional<Noted> noted = std::nullopt)
      : outgoing_(outgoing), incoming_(incoming), noted_(noted) {}

  std::size_t write_some(std::span<const std::byte> bytes) override {
    const std::size_t n_bytes = outgoing_.write_some(bytes);
    if (n_bytes > 0) is_used_ = true;
    if (noted_ && n_bytes > 0) noted_->at_peer.note(noted_->member);
    return n_bytes;
  }
  std::size_t read_some(std::span<std::byte> bytes) override {
    const std::size_t n_bytes = incoming_.read_some(bytes);
    if (n_bytes > 0) is_used_ = true;
    return n_bytes;
  }
  ChannelState state() const override { return incoming_.closed() ? ChannelState::kClosed : ChannelState::kOpen; }

  Traffic traffic() const {
    if (!is_used_) return {};  // without a look at memory that this process may never have touched
    const std::uint64_t n_read = outgoing_.n_read();  // before what was written, which is no less
    return {n_read, incoming_.n_read(), 0, outgoing_.n_written() - n_read};
  }

  void close() {
    outgoing_.close();
    incoming_.close();
  }

 private:
  ByteRing outgoing_;
  ByteRing incoming_;
  std::optional<Noted> noted_;
  bool is_used_ = false;
};

}  // namespace ciranda
