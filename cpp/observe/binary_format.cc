#include "observe/binary_format.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace ciranda {
namespace {

constexpr std::size_t kNameWords = BinaryFormat::kEntryWords - 2;
constexpr std::size_t kNameBytes = kNameWords * sizeof(std::uint64_t);

std::uint64_t word(auto value) { return static_cast<std::uint64_t>(value); }

}  // namespace

void BinaryFormat::put(const Words& words, std::string& to) {
  std::array<char, sizeof(Words)> bytes{};
  std::memcpy(bytes.data(), words.data(), sizeof(Words));
  to.append(bytes.data(), bytes.size());
}

void BinaryFormat::begin(std::int64_t epoch_us, std::string& to) {
  put({kMagic | word(Entry::kBegin), kVersion, word(rank_), word(size_), word(::getpid()), word(epoch_us)}, to);
}

std::uint64_t BinaryFormat::number_of(const std::string& name, std::string& to) {
  const auto [entry, is_new] = numbers_.try_emplace(name, numbers_.size());
  if (!is_new) return entry->second;
  std::string_view rest = name;
  do {
    Words words{word(Entry::kName), entry->second | word(name.size()) << 32U};
    const std::size_t n_bytes = std::min(rest.size(), kNameBytes);
    std::memcpy(&words[2], rest.data(), n_bytes);
    put(words, to);
    rest.remove_prefix(n_bytes);
  } while (!rest.empty());
  return entry->second;
}

std::uint64_t BinaryFormat::number_of_algorithm(std::string_view name, std::string& to) {
  if (name.empty()) return 0;
  const auto known = std::find(algorithms_.begin(), algorithms_.end(), name);
  const std::uint64_t number = word(known - algorithms_.begin()) + 1;
  if (known != algorithms_.end()) return number;
  algorithms_.push_back(name);
  Words words{word(Entry::kAlgorithm), number};
  std::memcpy(&words[2], name.data(), std::min(name.size(), kNameBytes));
  put(words, to);
  return number;
}

void BinaryFormat::add(const Record& record, std::string& to) {
  const std::uint64_t name = number_of(record.name, to);
  const std::uint64_t algorithm = number_of_algorithm(record.algorithm, to);
  const std::uint64_t dtype = record.dtype ? word(*record.dtype) + 1 : 0;
  Words words{word(Entry::kCall) | word(record.collective) << 8U | word(record.path) << 16U |
                  word(record.outcome) << 24U | dtype << 32U | algorithm << 40U,
              name | word(record.lane) << 32U, record.process_set, record.n_bytes};
  std::transform(record.at_ns.begin(), record.at_ns.end(), words.begin() + 4, [](std::int64_t ns) { return word(ns); });
  put(words, to);
}

void BinaryFormat::add_step(std::uint64_t n_steps, std::int64_t at_ns, std::string& to) {
  put({word(Entry::kStep), n_steps, word(at_ns)}, to);
}

void BinaryFormat::add_lost(std::uint64_t n_records, std::int64_t at_ns, std::string& to) {
  put({word(Entry::kLost), n_records, word(at_ns)}, to);
}

}  // namespace ciranda
