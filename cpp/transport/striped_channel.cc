#include "transport/striped_channel.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/crc32c.hpp"
#include "transport/socket.hpp"

namespace ciranda {
namespace {

// Segments of this size or more may go over any socket.
constexpr std::size_t kLarge = StripedChannel::kSegmentBytes / 2;

// The size of the next segment. The last one is never small if an earlier one is large.
std::size_t next_segment(std::size_t n_left) {
  return n_left <= StripedChannel::kSegmentBytes + kLarge ? n_left : StripedChannel::kSegmentBytes;
}

}  // namespace

StripedChannel::StripedChannel(std::vector<TcpChannel> sockets, bool is_checked)
    : is_checked_(is_checked), n_header_bytes_(is_checked ? sizeof(Header) : offsetof(Header, sum_of_bytes)) {
  strands_.reserve(sockets.size());
  for (TcpChannel& each : sockets) {
    if (sockets.size() > 1) limit_unsent(each.fd(), static_cast<int>(4 * kSegmentBytes));
    strands_.emplace_back(std::move(each));
  }
}

ChannelState StripedChannel::state() const {
  const bool is_open = std::all_of(strands_.begin(), strands_.end(),
                                   [](const Strand& each) { return each.socket.state() == ChannelState::kOpen; });
  return is_open && !is_damaged_ ? ChannelState::kOpen : ChannelState::kClosed;
}

// --- outgoing

std::size_t StripedChannel::write_some(std::span<const std::byte> first, std::span<const std::byte> second) {
  if (state() != ChannelState::kOpen) return 0;
  std::size_t n_taken = 0;
  while (!first.empty() || !second.empty()) {
    const std::size_t n_bytes = next_segment(first.size() + second.size());
    const auto from_first = first.first(std::min(n_bytes, first.size()));
    const auto from_second = second.first(n_bytes - from_first.size());
    const Header header{n_written_, static_cast<std::uint32_t>(n_bytes) & 0x7fffffffU, n_bytes >= kLarge};
    if (!hand_out(header, from_first, from_second)) break;
    ++n_written_;
    may_write_to_any_ = header.roams != 0;
    first = first.subspan(from_first.size());
    second = second.subspan(from_second.size());
    n_taken += n_bytes;
  }
  return n_taken;
}

// Returns whether some socket has taken the segment.
bool StripedChannel::hand_out(const Header& header, std::span<const std::byte> first,
                              std::span<const std::byte> second) {
  if (!may_write_to_any_) {
    next_writer_ = 1 % strands_.size();
    return write_segment(strands_.front(), header, first, second);
  }
  for (std::size_t i = 0; i < strands_.size(); ++i) {
    Strand& strand = strands_[next_writer_];
    next_writer_ = (next_writer_ + 1) % strands_.size();
    if (write_segment(strand, header, first, second)) return true;
  }
  return false;
}

// Returns whether the segment was taken.
bool StripedChannel::write_segment(Strand& strand, Header header, std::span<const std::byte> first,
                                   std::span<const std::byte> second) {
  if (!flush(strand) || !strand.socket.may_write()) return false;
  const auto header_bytes = std::as_bytes(std::span(&header, 1)).first(n_header_bytes_);
  if (is_checked_) {
    header.sum_of_bytes = crc32c(second, crc32c(first));
    header.sum_of_header = crc32c(header_bytes.first(offsetof(Header, sum_of_header)));
  }
  const std::array parts{header_bytes, first, second};
  std::size_t n_sent = strand.socket.write_parts(parts);
  if (n_sent == 0) return false;
  strand.unsent.clear();
  strand.unsent_begin = 0;
  for (const auto& part : parts) {
    const auto rest = part.subspan(std::min(n_sent, part.size()));
    n_sent -= part.size() - rest.size();
    strand.unsent.insert(strand.unsent.end(), rest.begin(), rest.end());
  }
  return true;
}

// Returns whether everything was written.
bool StripedChannel::flush(Strand& strand) {
  while (strand.unsent_begin < strand.unsent.size()) {
    const std::size_t n = strand.socket.write_some(std::span(strand.unsent).subspan(strand.unsent_begin));
    if (n == 0) return false;
    strand.unsent_begin += n;
  }
  return true;
}

void StripedChannel::flush() {
  for (Strand& each : strands_) flush(each);
}

bool StripedChannel::has_unsent() const {
  return std::any_of(strands_.begin(), strands_.end(),
                     [](const Strand& each) { return each.unsent_begin < each.unsent.size(); });
}

// --- incoming

std::size_t StripedChannel::read_some(std::span<std::byte> bytes) {
  std::size_t n_read = 0;
  while (n_read < bytes.size() && !is_damaged_ && (n_to_read_ > 0 || find_segment())) {
    const std::size_t n = take(bytes.subspan(n_read));
    if (n == 0) break;
    n_read += n;
  }
  return n_read;
}

// Returns whether the header of the next segment has arrived.
bool StripedChannel::find_segment() {
  const std::size_t n_candidates = may_arrive_by_any_ ? strands_.size() : 1;
  for (std::size_t i = 0; i < n_candidates; ++i) {
    const std::size_t candidate = may_arrive_by_any_ ? (reader_ + 1 + i) % strands_.size() : 0;
    Strand& strand = strands_[candidate];
    if (!look_for_header(strand) || strand.header.number != n_begun_) continue;
    strand.has_header = false;
    reader_ = candidate;
    n_to_read_ = strand.header.n_bytes;
    sum_read_ = 0;
    may_arrive_by_any_ = strand.header.roams != 0;
    ++n_begun_;
    return true;
  }
  return false;
}

// Returns whether the header of the strand's next segment is known.
bool StripedChannel::look_for_header(Strand& strand) {
  if (strand.has_header) return true;
  if (strand.ahead_end - strand.ahead_begin < n_header_bytes_) {
    std::memmove(strand.ahead.data(), strand.ahead.data() + strand.ahead_begin, strand.ahead_end - strand.ahead_begin);
    strand.ahead_end -= strand.ahead_begin;
    strand.ahead_begin = 0;
    strand.ahead_end += strand.socket.read_some(std::span(strand.ahead).subspan(strand.ahead_end));
    if (strand.ahead_end < n_header_bytes_) return false;
  }
  const auto bytes = std::span(strand.ahead).subspan(strand.ahead_begin, n_header_bytes_);
  std::memcpy(&strand.header, bytes.data(), bytes.size());
  strand.ahead_begin += bytes.size();
  is_damaged_ |= is_checked_ && crc32c(bytes.first(offsetof(Header, sum_of_header))) != strand.header.sum_of_header;
  strand.has_header = !is_damaged_;
  return strand.has_header;
}

// Reads bytes of the current segment, first those that were read together with its header.
std::size_t StripedChannel::take(std::span<std::byte> bytes) {
  Strand& strand = strands_[reader_];
  bytes = bytes.first(std::min(bytes.size(), n_to_read_));
  const std::size_t n_ahead = strand.ahead_end - strand.ahead_begin;
  const std::size_t n = n_ahead == 0 ? strand.socket.read_some(bytes) : std::min(bytes.size(), n_ahead);
  if (n_ahead != 0) {
    std::memcpy(bytes.data(), strand.ahead.data() + strand.ahead_begin, n);
    strand.ahead_begin += n;
  }
  n_to_read_ -= n;
  if (!is_checked_) return n;
  sum_read_ = crc32c(bytes.first(n), sum_read_);
  is_damaged_ = n_to_read_ == 0 && sum_read_ != strand.header.sum_of_bytes;
  return is_damaged_ ? 0 : n;
}

}  // namespace ciranda
