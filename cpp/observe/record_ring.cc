#include "observe/record_ring.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <string>

#include "base/fetch_line.hpp"
#include "observe/put_words.hpp"

namespace ciranda {
namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);
constexpr std::uint64_t kArrival = 1ULL << 63U;  // in the word of a pointer, which has no such bit

std::string shortened(std::string_view name) {
  const std::string number = "... #" + std::to_string(std::hash<std::string_view>()(name));
  return std::string(name.substr(0, RecordRing::kMostNameBytes - number.size())) + number;
}

}  // namespace

RecordRing::RecordRing(std::size_t n_records)
    : capacity_(std::bit_ceil(n_records)), words_(new Word[capacity_ * kWords]{}) {}

void RecordRing::write(const RecordedCall& call, const Stages& stages) {
  if (call.name.size() > kMostNameBytes) {
    RecordedCall cut = call;
    const std::string name = shortened(call.name);
    cut.name = name;
    return write(cut, stages);
  }
  const std::uint64_t n = n_written_.load(std::memory_order_relaxed);
  Word* const to = record(n);
  const std::uint64_t dtype = call.dtype ? static_cast<std::uint64_t>(*call.dtype) + 1 : 0;
  put(to[0], static_cast<std::uint64_t>(call.collective) | static_cast<std::uint64_t>(stages.path) << 8U |
                 static_cast<std::uint64_t>(call.outcome) << 16U | dtype << 24U |
                 static_cast<std::uint64_t>(call.name.size()) << 32U |
                 static_cast<std::uint64_t>(stages.algorithm.size()) << 48U);
  put(to[1], call.process_set | static_cast<std::uint64_t>(call.lane) << 32U);
  put(to[2], call.n_bytes);
  // The name of an algorithm is a constant, and an arrival has none.
  put(to[3], call.arrived ? kArrival | static_cast<std::uint64_t>(*call.arrived)
                          : reinterpret_cast<std::uintptr_t>(stages.algorithm.data()));
  for (std::size_t i = 0; i < kStageCount; ++i) put(to[4 + i], stages[static_cast<Stage>(i)]);
  put_name(to + kFixedWords, call.name);
  n_written_.store(n + 1, std::memory_order_release);
  // Fetches the cache lines of the next record, which a reader's core may hold, so that the next write does not wait.
  fetch_line(*record(n + 1));
  fetch_line(*(record(n + 1) + 8));
}

bool RecordRing::read(std::uint64_t n, Record& into) const {
  const Word* const from = record(n);
  // What is behind the name is left alone: another core may hold those cache lines.
  std::array<std::uint64_t, kWords> words;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  const auto fetch = [&](std::size_t first, std::size_t n_words) {
    std::transform(from + first, from + first + n_words, words.begin() + static_cast<std::ptrdiff_t>(first),
                   [](const Word& word) { return word.load(std::memory_order_acquire); });
  };
  fetch(0, kFixedWords);
  const std::size_t n_name_bytes = std::min<std::size_t>(words[0] >> 32U & 0xffffU, kMostNameBytes);  // it may be torn
  fetch(kFixedWords, (n_name_bytes + kWordBytes - 1) / kWordBytes);
  if (n_written_.load(std::memory_order_relaxed) >= n + capacity_) return false;
  into.call.collective = static_cast<Collective>(words[0] & 0xffU);
  into.stages.path = static_cast<Path>(words[0] >> 8U & 0xffU);
  into.call.outcome = static_cast<ErrorKind>(words[0] >> 16U & 0xffU);
  const std::uint64_t dtype = words[0] >> 24U & 0xffU;
  into.call.dtype.reset();
  if (dtype != 0) into.call.dtype = static_cast<DataType>(dtype - 1);
  into.call.process_set = static_cast<std::uint32_t>(words[1]);
  into.call.lane = static_cast<std::uint32_t>(words[1] >> 32U);
  into.call.n_bytes = words[2];
  const bool is_arrival = (words[3] & kArrival) != 0;
  into.call.arrived.reset();
  if (is_arrival) into.call.arrived = static_cast<int>(words[3] & ~kArrival);
  into.stages.algorithm = {};
  if (!is_arrival) {
    into.stages.algorithm = {reinterpret_cast<const char*>(static_cast<std::uintptr_t>(words[3])), words[0] >> 48U};
  }
  for (std::size_t i = 0; i < kStageCount; ++i) into.stages.note(static_cast<Stage>(i), words[4 + i]);
  std::memcpy(into.name.data(), &words[kFixedWords], n_name_bytes);
  into.call.name = {into.name.data(), n_name_bytes};
  return true;
}

}  // namespace ciranda
