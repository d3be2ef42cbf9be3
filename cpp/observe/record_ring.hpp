// RecordRing: the last calls that were done on this rank, in memory of a fixed size. Whoever writes never waits: the
// oldest record makes room, whether it was read or not.
//
// Threads: one writes at a time; any number read meanwhile.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/status.hpp"
#include "call/op_table.hpp"
#include "observe/stages.hpp"

namespace ciranda {

// One call, as it is written.
struct RecordedCall {
  std::string_view name = {};
  Collective collective = Collective::kAllreduce;
  ErrorKind outcome = ErrorKind::kOk;
  std::uint32_t process_set = 0;
  std::uint32_t lane = 0;
  std::uint64_t n_bytes = 0;
};

class RecordRing {
 public:
  // A record: what is fixed in its first words, the name in the rest. Of a longer name the end is cut off, and a number
  // put there that stands for the whole.
  static constexpr std::size_t kWords = 32;
  static constexpr std::size_t kFixedWords = 3 + kStageCount;
  static constexpr std::size_t kMostNameBytes = (kWords - kFixedWords) * sizeof(std::uint64_t);

  struct Record {
    RecordedCall call;  // whose name is that of the record
    Stages stages;
    std::array<char, kMostNameBytes> name;
  };

  explicit RecordRing(std::size_t n_records);

  std::size_t capacity() const { return capacity_; }
  // How many have been written, ever.
  std::uint64_t n_written() const { return n_written_.load(std::memory_order_acquire); }

  void write(const RecordedCall& call, const Stages& stages);

  // The n-th that was written. False: another has been written over it. REQUIRES: n < n_written().
  bool read(std::uint64_t n, Record& record) const;

 private:
  using Word = std::atomic<std::uint64_t>;
  Word* record(std::uint64_t n) const { return &words_[(n % capacity_) * kWords]; }

  std::size_t capacity_;
  std::unique_ptr<Word[]> words_;  // NOLINT(modernize-avoid-c-arrays): std::vector cannot hold atomics
  std::atomic<std::uint64_t> n_written_{0};
};

}  // namespace ciranda
