// Delivery: decides when records that a peer's host has acknowledged have not come to the peer for too long: something
// between the two takes them, and holds them back.
//
// Only what the peer says counts: how many records it has received, when nothing has arrived that it has not received.
// What it says may be older than a record; one that is stopped or slow says nothing; and a record that is on its way
// is not acknowledged. So only several answers, over some time, are evidence.
//
// Called by SocketMesh, often. A plain value, for one direction of one or several connections.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

namespace ciranda {

class Delivery {
 public:
  using Clock = std::chrono::steady_clock;

  // The peer says how many records it has received.
  void note_received(std::uint64_t n_records) {
    n_received_ = n_records;
    has_answer_ = true;
  }

  // Whether records have been held back for twice `limit`. `n_acknowledged`: how many were sent, if the peer's host has
  // acknowledged all of them. An answer that comes late counts as if it had come in time: this machine may have stood
  // still.
  bool is_held_back(std::optional<std::uint64_t> n_acknowledged, Clock::time_point now, Clock::duration limit) {
    if (n_received_ >= n_awaited_) {
      n_awaited_ = n_acknowledged.value_or(n_awaited_);
      start(now);
    } else if (std::exchange(has_answer_, false)) {
      if (n_received_ != n_received_before_) start(now);
      missing_for_ += std::min(now - counted_at_, limit / 2);
      counted_at_ = now;
    }
    return missing_for_ >= 2 * limit;
  }

  std::uint64_t n_received() const { return n_received_; }
  std::uint64_t n_awaited() const { return n_awaited_; }

 private:
  void start(Clock::time_point now) {
    n_received_before_ = n_received_;
    missing_for_ = {};
    counted_at_ = now;
    has_answer_ = false;
  }

  std::uint64_t n_received_ = 0;
  std::uint64_t n_received_before_ = 0;
  std::uint64_t n_awaited_ = 0;  // so many must come
  bool has_answer_ = false;      // since the last look
  Clock::duration missing_for_{};
  Clock::time_point counted_at_{};
};

}  // namespace ciranda
