#include "collective/rounded_stream.hpp"

#include <algorithm>

#include "kernels/bfloat16_wire.hpp"

namespace ciranda {
namespace {

constexpr std::size_t kWideBytes = 4;
constexpr std::size_t kPackedBytes = 2;
constexpr std::size_t kMostValues = 32 << 10;  // packed or unpacked at once

std::span<std::byte> room(std::vector<std::byte>& memory, std::size_t n_values) {
  if (memory.size() < n_values * kPackedBytes) memory.resize(n_values * kPackedBytes);
  return std::span(memory).first(n_values * kPackedBytes);
}

}  // namespace

std::size_t RoundedStream::write_some(Channel& channel, std::span<const std::byte> values) {
  if (!flush(channel)) return 0;
  const std::size_t n = std::min(values.size() / kWideBytes, kMostValues);
  kernels::pack_bfloat16(values.data(), room(packed_, n).data(), n);
  n_packed_ = n * kPackedBytes;
  n_sent_ = 0;
  flush(channel);
  return n * kWideBytes;
}

bool RoundedStream::flush(Channel& channel) {
  while (has_unsent()) {
    const std::size_t n = channel.write_some(std::span(packed_).subspan(n_sent_, n_packed_ - n_sent_));
    if (n == 0) return false;
    n_sent_ += n;
  }
  return true;
}

std::size_t RoundedStream::read_some(Channel& channel, std::span<std::byte> values) {
  const auto packed = room(arrived_, std::min(values.size() / kWideBytes, kMostValues));
  n_arrived_ += channel.read_some(packed.subspan(n_arrived_));
  const std::size_t n = n_arrived_ / kPackedBytes;
  kernels::unpack_bfloat16(packed.data(), values.data(), n);
  n_arrived_ -= n * kPackedBytes;
  if (n_arrived_ > 0) packed[0] = packed[n * kPackedBytes];
  return n * kWideBytes;
}

}  // namespace ciranda
