#include "transport/lane_mux.hpp"

#include <algorithm>
#include <cstring>

namespace ciranda {
namespace {

// Large enough to cost nothing, small enough that lanes take turns.
constexpr std::size_t kMostFrameBytes = 256 << 10;
// Bytes for a lane that is not reading are read in parts of this size.
constexpr std::size_t kKeepBytes = 64 << 10;

}  // namespace

LaneMux::Link& LaneMux::link(int peer) {
  std::unique_ptr<Link>& link = links_[static_cast<std::size_t>(peer)];
  if (!link) {
    link = std::make_unique<Link>();
    used_.push_back(peer);
  }
  return *link;
}

// --- outgoing

// Returns whether everything was written.
bool LaneMux::flush(Link& link, int peer) {
  while (link.unsent_begin < link.unsent_end) {
    const auto rest = std::span(link.unsent).subspan(link.unsent_begin, link.unsent_end - link.unsent_begin);
    const std::size_t n = mesh_.data(peer).write_some(rest);
    if (n == 0) return false;
    link.unsent_begin += n;
  }
  link.unsent_begin = link.unsent_end = 0;
  return finish_abandoned(link, peer);
}

bool LaneMux::finish_abandoned(Link& link, int peer) {
  while (!link.abandoned.empty()) {
    const std::size_t n = mesh_.data(peer).write_some(std::span(link.abandoned).last(link.open.n_bytes));
    if (n == 0) return false;
    link.open.n_bytes -= static_cast<std::uint32_t>(n);
    if (link.open.n_bytes == 0) link.abandoned = Bytes();
  }
  return true;
}

void LaneMux::abandon(std::uint32_t lane) {
  abandoned_.insert(lane);
  for (const int peer : used_) {
    Link& to = link(peer);
    to.kept.erase(lane);
    const bool has_rest = to.open.lane == lane && to.open.n_bytes > 0 && to.abandoned.empty();
    if (has_rest) to.abandoned.assign(to.rest, to.rest + to.open.n_bytes);
  }
}

std::size_t LaneMux::write_some(std::uint32_t lane, int peer, std::span<const std::byte> bytes) {
  Link& to = link(peer);
  if (!flush(to, peer) || bytes.empty()) return 0;
  if (to.open.n_bytes > 0) {
    if (to.open.lane != lane) return 0;  // only the frame's own lane can finish it
    const std::size_t n =
        mesh_.data(peer).write_some(bytes.first(std::min<std::size_t>(bytes.size(), to.open.n_bytes)));
    to.open.n_bytes -= static_cast<std::uint32_t>(n);
    to.rest = bytes.data() + n;
    return n;
  }
  // The header and the first bytes are written together, so a small message is one write.
  const std::size_t n_frame = std::min(bytes.size(), kMostFrameBytes);
  to.open = {lane, static_cast<std::uint32_t>(n_frame)};
  std::memcpy(to.unsent.data(), &to.open, sizeof(Header));
  const std::size_t n = mesh_.data(peer).write_some(to.unsent, bytes.first(n_frame));
  if (n == 0) {  // the channel is full: the frame has not begun
    to.open = {};
    return 0;
  }
  to.unsent_begin = std::min(n, sizeof(Header));
  to.unsent_end = sizeof(Header);
  const std::size_t n_taken = n - to.unsent_begin;
  if (to.unsent_begin == to.unsent_end) to.unsent_begin = to.unsent_end = 0;
  to.open.n_bytes -= static_cast<std::uint32_t>(n_taken);
  to.rest = bytes.data() + n_taken;
  return n_taken;
}

bool LaneMux::flush() {
  bool moved = false;
  for (const int peer : used_) {
    Link& to = link(peer);
    if (to.has_all_sent()) continue;
    const auto n_left = [&to] { return to.unsent_end - to.unsent_begin + to.open.n_bytes; };
    const std::size_t before = n_left();
    moved |= flush(to, peer) || n_left() != before;
  }
  return moved;
}

bool LaneMux::is_flushed(int peer) const {
  const std::unique_ptr<Link>& link = links_[static_cast<std::size_t>(peer)];
  return !link || (link->unsent_begin == link->unsent_end && !mesh_.data(peer).has_unsent());
}

bool LaneMux::has_unsent() const {
  return std::any_of(used_.begin(), used_.end(), [this](int peer) {
    return !is_flushed(peer) || !links_[static_cast<std::size_t>(peer)]->abandoned.empty();
  });
}

// --- incoming

std::size_t LaneMux::read_some(std::uint32_t lane, int peer, std::span<std::byte> bytes) {
  Link& from = link(peer);
  if (bytes.empty()) return 0;
  if (!from.kept.empty()) {
    const auto found = from.kept.find(lane);
    if (found != from.kept.end()) {
      Kept& kept = found->second;
      const std::size_t n = std::min(bytes.size(), kept.bytes.size() - kept.n_read);
      std::memcpy(bytes.data(), kept.bytes.data() + kept.n_read, n);
      kept.n_read += n;
      if (kept.n_read == kept.bytes.size()) from.kept.erase(found);
      return n;
    }
  }
  while (next_header(from, peer)) {
    if (from.incoming.lane == lane) {
      const std::size_t n = take(from, peer, bytes.first(std::min<std::size_t>(bytes.size(), from.incoming.n_bytes)));
      from.incoming.n_bytes -= static_cast<std::uint32_t>(n);
      return n;
    }
    const bool is_abandoned = !abandoned_.empty() && abandoned_.contains(from.incoming.lane);
    if (!(is_abandoned ? drop(from, peer) : keep(from, peer))) return 0;
    has_made_room_ = true;
  }
  return 0;
}

// Returns whether a frame is open, with bytes still to arrive.
bool LaneMux::next_header(Link& link, int peer) {
  while (link.incoming.n_bytes == 0) {
    if (link.ahead_end - link.ahead_begin < sizeof(Header)) {
      std::memmove(link.ahead.data(), link.ahead.data() + link.ahead_begin, link.ahead_end - link.ahead_begin);
      link.ahead_end -= link.ahead_begin;
      link.ahead_begin = 0;
      link.ahead_end += mesh_.data(peer).read_some(std::span(link.ahead).subspan(link.ahead_end));
      if (link.ahead_end < sizeof(Header)) return false;
    }
    std::memcpy(&link.incoming, link.ahead.data() + link.ahead_begin, sizeof(Header));
    link.ahead_begin += sizeof(Header);
  }
  return true;
}

// Reads bytes of the open frame, first those that were read together with its header.
std::size_t LaneMux::take(Link& link, int peer, std::span<std::byte> bytes) {
  if (link.ahead_begin == link.ahead_end) return mesh_.data(peer).read_some(bytes);
  const std::size_t n = std::min(bytes.size(), link.ahead_end - link.ahead_begin);
  std::memcpy(bytes.data(), link.ahead.data() + link.ahead_begin, n);
  link.ahead_begin += n;
  return n;
}

// Keeps bytes of the open frame for its lane. Returns whether any had arrived.
bool LaneMux::keep(Link& link, int peer) {
  Bytes& kept = link.kept[link.incoming.lane].bytes;
  const std::size_t at = kept.size();
  kept.resize(at + std::min<std::size_t>(link.incoming.n_bytes, kKeepBytes));
  const std::size_t n = take(link, peer, std::span(kept).subspan(at));
  kept.resize(at + n);
  link.incoming.n_bytes -= static_cast<std::uint32_t>(n);
  if (kept.empty()) link.kept.erase(link.incoming.lane);
  return n > 0;
}

// As keep(), for an abandoned lane: drops the bytes.
bool LaneMux::drop(Link& link, int peer) {
  std::array<std::byte, 4096> ignored;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  const std::size_t n =
      take(link, peer, std::span(ignored).first(std::min<std::size_t>(link.incoming.n_bytes, ignored.size())));
  link.incoming.n_bytes -= static_cast<std::uint32_t>(n);
  return n > 0;
}

}  // namespace ciranda
