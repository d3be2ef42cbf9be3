// RoundedStream: float32 to and from one peer, over a channel that carries them as bfloat16.
//
// Written values are rounded, and packed while they are in the cache; read ones are unpacked straight into their place.
// What was taken is kept here, has_unsent() meanwhile, until the channel has had room for it.
// Threads, failure: as Channel.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "transport/channel.hpp"

namespace ciranda {

class RoundedStream {
 public:
  // Returns how many bytes of `values` were taken, which are whole float32. REQUIRES: whole float32.
  std::size_t write_some(Channel& channel, std::span<const std::byte> values);
  // Returns whether nothing is left.
  bool flush(Channel& channel);
  bool has_unsent() const { return n_sent_ < n_packed_; }

  // Fills as many of `values` as have come, and returns how many bytes of it. REQUIRES: whole float32.
  std::size_t read_some(Channel& channel, std::span<std::byte> values);

 private:
  std::vector<std::byte> packed_;
  std::size_t n_packed_ = 0;
  std::size_t n_sent_ = 0;
  std::vector<std::byte> arrived_;
  std::size_t n_arrived_ = 0;  // less than one value, between calls
};

}  // namespace ciranda
