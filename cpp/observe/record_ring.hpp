// RecordRing: the last completed calls of this rank, in memory of a fixed size. The writer never waits: it overwrites
// the oldest record, whether that was read or not.
//
// Called by Recorder, one writer at a time (the holder of the progress lock), and by Recording: any number of
// concurrent readers.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "call/op_table.hpp"
#include "observe/stages.hpp"

namespace ciranda {

// The record of one call, except its stages.
struct RecordedCall {
  std::string_view name = {};
  Collective collective = Collective::kAllreduce;
  ErrorKind outcome = ErrorKind::kOk;
  std::uint32_t process_set = 0;
  std::uint32_t lane = 0;
  std::uint64_t n_bytes = 0;
  std::optional<DataType> dtype = {};  // of the first tensor
  // Not a call, but that the coordinator, this rank, has learned at Stage::kReady that this rank has made it.
  std::optional<int> arrived = {};
};

class RecordRing {
 public:
  // A record in words: first the fields of fixed size, then the name. If a name is too long, its end is replaced by a
  // hash of the whole name.
  static constexpr std::size_t kWords = 32;
  static constexpr std::size_t kFixedWords = 4 + kStageCount;
  static constexpr std::size_t kMostNameBytes = (kWords - kFixedWords) * sizeof(std::uint64_t);

  struct Record {
    RecordedCall call;  // its name points to the member below
    Stages stages;
    std::array<char, kMostNameBytes> name;
  };

  explicit RecordRing(std::size_t n_records);

  std::size_t capacity() const { return capacity_; }
  // The number of all records written so far.
  std::uint64_t n_written() const { return n_written_.load(std::memory_order_acquire); }

  void write(const RecordedCall& call, const Stages& stages);

  // Reads the n-th record written, counted from 0. False if it has been overwritten. REQUIRES: n < n_written().
  bool read(std::uint64_t n, Record& record) const;

 private:
  using Word = std::atomic<std::uint64_t>;
  Word* record(std::uint64_t n) const { return &words_[(n & (capacity_ - 1)) * kWords]; }

  std::size_t capacity_;           // a power of two, so that no division finds the place of a record
  std::unique_ptr<Word[]> words_;  // NOLINT(modernize-avoid-c-arrays): std::vector cannot hold atomics
  std::atomic<std::uint64_t> n_written_{0};
};

}  // namespace ciranda
