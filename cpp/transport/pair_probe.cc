#include "transport/pair_probe.hpp"

#include <algorithm>

#include "base/copy_bytes.hpp"
#include "base/turns.hpp"

namespace ciranda {
namespace {

using Clock = Turns::Clock;

constexpr std::size_t kMostBytes = 64 << 10;  // about as much as a reduction writes at a time
constexpr int kTries = 8;
constexpr std::uint64_t kFsPerNs = 1'000'000;

// One member's side of a measurement with another.
class Pair {
 public:
  Pair(const SharedArena& arena, int other, std::size_t number, Clock::time_point deadline)
      : side_(arena.member() < other ? Turns::Side::kFirst : Turns::Side::kSecond),
        turns_(word(arena, std::min(arena.member(), other), number), side_),
        deadline_(deadline),
        n_bytes_(std::min(arena.slot_bytes(), kMostBytes)),
        own_(arena.slot(arena.member(), 1)),
        others_(arena.slot(other, 1)) {}

  std::optional<PairCosts> measure() {
    const auto line_ns = turns_.one_way_ns(deadline_);
    if (!line_ns) return std::nullopt;
    PairCosts costs{static_cast<std::uint64_t>(*line_ns), {}};
    for (const StagingCopy technique : {StagingCopy::kCached, StagingCopy::kPastCaches}) {
      const auto found = hand_over(technique);
      if (!found) return std::nullopt;
      costs.hand_over_fs[static_cast<std::size_t>(technique)] = found->write_fs + found->read_fs;
      if (technique == StagingCopy::kCached) costs.read_fs = found->read_fs;
    }
    if (side_ == Turns::Side::kFirst) turns_.await(deadline_);  // the second side has then read this side's last write
    return costs;
  }

 private:
  // A word in the first slot of the lower member, which is still unused.
  static std::atomic<std::uint64_t>& word(const SharedArena& arena, int lower, std::size_t number) {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(arena.slot(lower, 0) + number * SharedArena::kLineBytes);
  }

  struct Handed {
    std::uint64_t write_fs = UINT64_MAX;
    std::uint64_t read_fs = UINT64_MAX;
  };

  // The sides take turns: each reads the other's bytes, and writes over bytes that the other has read. Returns the best
  // times.
  std::optional<Handed> hand_over(StagingCopy technique) {
    Handed best;
    for (int attempt = 0; attempt < kTries; ++attempt) {
      if (!turns_.await(deadline_)) return std::nullopt;
      const auto begin = Clock::now();
      copy_bytes(private_.data(), others_, n_bytes_);
      const auto middle = Clock::now();
      copy_by(technique, own_, private_.data(), n_bytes_);
      const auto end = Clock::now();
      turns_.pass();
      const bool has_other_written = attempt > 0;  // with the same technique
      if (has_other_written) best.read_fs = std::min(best.read_fs, fs_per_byte(middle - begin));
      best.write_fs = std::min(best.write_fs, fs_per_byte(end - middle));
    }
    return best;
  }

  std::uint64_t fs_per_byte(Clock::duration taken) const {
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(taken).count();
    return static_cast<std::uint64_t>(ns) * kFsPerNs / n_bytes_;
  }

  Turns::Side side_;
  Turns turns_;
  Clock::time_point deadline_;
  std::size_t n_bytes_;
  std::byte* own_;
  std::byte* others_;
  std::vector<std::byte> private_ = std::vector<std::byte>(n_bytes_);
};

}  // namespace

std::vector<std::optional<PairCosts>> probe_pairs(const SharedArena& arena, Clock::time_point deadline) {
  std::vector<std::optional<PairCosts>> found(static_cast<std::size_t>(arena.n_members()));
  for (std::size_t number = 0; 1 << number < arena.n_members(); ++number) {
    const int other = arena.member() ^ (1 << number);
    if (other >= arena.n_members()) continue;
    found[static_cast<std::size_t>(other)] = Pair(arena, other, number, deadline).measure();
  }
  return found;
}

}  // namespace ciranda
