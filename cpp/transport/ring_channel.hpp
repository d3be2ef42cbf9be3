// RingChannel: a Channel over two byte rings, one each way. Used in shared memory and, in tests, in private memory.
//
// Called by SocketMesh, which makes it; through Channel by its callers. Threads, failure: as Channel. The memory of the
// rings is not owned and must outlive the channel. Either side may call close(), as may any process that learns that a
// side is dead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/channel.hpp"
#include "transport/ring.hpp"
#include "transport/traffic.hpp"

namespace ciranda {

class RingChannel final : public Channel {
 public:
  RingChannel(ByteRing outgoing, ByteRing incoming) : outgoing_(outgoing), incoming_(incoming) {}

  std::size_t write_some(std::span<const std::byte> bytes) override { return outgoing_.write_some(bytes); }
  std::size_t read_some(std::span<std::byte> bytes) override { return incoming_.read_some(bytes); }
  ChannelState state() const override { return incoming_.closed() ? ChannelState::kClosed : ChannelState::kOpen; }

  Traffic traffic() const {
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
};

}  // namespace ciranda
