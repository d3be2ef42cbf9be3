// What every Channel must do, written against the interface (the tests are in channel_conformance.cc). A new
// implementation says how to make a connected pair, and instantiates the suite.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "transport/channel.hpp"

namespace ciranda {

// The two ends of a connection; ending one is what its process's end would be.
class ChannelPair {
 public:
  virtual ~ChannelPair() = default;
  virtual Channel& left() = 0;
  virtual Channel& right() = 0;
  virtual void end_left() = 0;
  // What a mesh does in poll_events().
  virtual void poll() {}
};

struct ChannelKind {
  std::string name;
  std::function<std::unique_ptr<ChannelPair>()> make;
};

class ChannelConformance : public ::testing::TestWithParam<ChannelKind> {
 protected:
  std::unique_ptr<ChannelPair> pair_ = GetParam().make();
};
inline std::vector<std::byte> random_bytes(std::size_t n_bytes, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(n_bytes);
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(random());
  }
  return bytes;
}

inline std::vector<std::byte> read_everything(ChannelPair& pair, Channel& from) {
  std::vector<std::byte> all;
  std::vector<std::byte> chunk(4096);
  // A socket may hand over in several events what was written in one.
  for (int n_empty = 0; n_empty < 3;) {
    pair.poll();
    const std::size_t n = from.read_some(chunk);
    all.insert(all.end(), chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(n));
    n_empty = n == 0 ? n_empty + 1 : 0;
  }
  return all;
}

}  // namespace ciranda
