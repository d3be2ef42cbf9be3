// BinaryFormat: writes records as entries of kEntryWords words, in this host's byte order, so that a rank that is
// killed leaves a file that is whole but for its last entry. This file is the truth about the layout;
// src/ciranda/launch/record_file.py reads it, and tests/multiprocess/test_run_timeline.py runs both.
//
// The lowest byte of an entry's first word is its Entry, which says what the other words are:
//
//   kBegin: magic, version, rank, size of the world, process, time of day in microseconds at which the clock was 0
//   kName:  number of the name | bytes of the whole name << 32; then up to 64 bytes of the name. A longer name has more
//           entries with the same number.
//   kCall:  first word also: collective << 8, path << 16, outcome << 24, element type + 1 << 32 (0: no tensor),
//           number of the algorithm << 40 (0: none); number of the name | lane << 32; process set; bytes; the times of
//           the stages in nanoseconds, 0: skipped
//   kStep:  number of steps that have ended; time
//   kLost:  number of records lost; time
//   kAlgorithm: its number; then up to 64 bytes of its name
//
// A name comes before the calls that have it, and so does an algorithm. Times are those of CLOCK_MONOTONIC.
//
// Called by RecordedSteps, which makes it for a timeline; no I/O.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "observe/record_format.hpp"

namespace ciranda {

class BinaryFormat final : public RecordFormat {
 public:
  static constexpr std::size_t kEntryWords = 4 + kStageCount;
  static constexpr std::uint64_t kMagic = 0x63655261'72694300;  // kBegin, "CiraRec" in memory
  static constexpr std::uint64_t kVersion = 2;

  BinaryFormat(int rank, int size) : rank_(rank), size_(size) {}

  void begin(std::int64_t epoch_us, std::string& to) override;
  void add(const Record& record, std::string& to) override;
  void add_step(std::uint64_t n_steps, std::int64_t at_ns, std::string& to) override;
  void add_lost(std::uint64_t n_records, std::int64_t at_ns, std::string& to) override;
  void end(std::string& /*to*/) override {}  // a rank that is killed writes none

 private:
  enum class Entry : std::uint8_t { kBegin = 0, kName = 1, kCall = 2, kStep = 3, kLost = 4, kAlgorithm = 5 };
  using Words = std::array<std::uint64_t, kEntryWords>;

  static void put(const Words& words, std::string& to);
  std::uint64_t number_of(const std::string& name, std::string& to);
  std::uint64_t number_of_algorithm(std::string_view name, std::string& to);

  int rank_;
  int size_;
  std::unordered_map<std::string, std::uint64_t> numbers_;  // by name
  std::vector<std::string_view> algorithms_;                // the number of the first is 1
};

}  // namespace ciranda
