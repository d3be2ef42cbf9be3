// RoundedStream: float32 to and from one peer, over a channel that carries them as bfloat16.
//
// Written values are rounded and packed while they are in the cache; read values are unpacked straight into their
// destination. The stream keeps values that it has taken until the channel has room; meanwhile has_unsent() is true.
// Threads, failure: as Channel. Called by PairTransfers; one thread (the holder of the progress lock).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "transport/channel.hpp"

namespace ciranda {

class RoundedStream {
 public:
  // Returns the number of bytes of `values` that were taken: whole float32 only. REQUIRES: whole float32.
  std::size_t write_some(Channel& channel, std::span<const std::byte> values);
  // Returns whether nothing is left unsent.
  bool flush(Channel& channel);
  bool has_unsent() const { return n_sent_ < n_packed_; }

  // Fills `values` with those that have arrived, and returns the number of bytes. REQUIRES: whole float32.
  std::size_t read_some(Channel& channel, std::span<std::byte> values);

 private:
  std::vector<std::byte> packed_;
  std::size_t n_packed_ = 0;
  std::size_t n_sent_ = 0;
  std::vector<std::byte> arrived_;
  std::size_t n_arrived_ = 0;  // between calls: less than one value
};

}  // namespace ciranda
