#include "observe/pending_table.hpp"

#include <algorithm>

#include "observe/put_words.hpp"

namespace ciranda {
namespace {

std::uint64_t load(const CounterWord& word) { return word.load(std::memory_order_relaxed); }

}  // namespace

// A process that was killed while it wrote an entry has left an odd number.
PendingTable::PendingTable(CounterPage& page) : page_(page) {
  const std::size_t n_used = std::min<std::size_t>(load(page.pending_used), kPagePending);
  for (std::size_t i = 0; i < n_used; ++i) {
    ShownCall& call = page.pending[i];
    put(call.since_ns, 0);
    put(call.sequence, load(call.sequence) + load(call.sequence) % 2);
  }
  put(page.pending_used, 0);
  put(page.n_in_flight, 0);
  for (std::size_t i = 0; i < kPagePending; ++i) free_[i] = static_cast<std::uint16_t>(kPagePending - 1 - i);
}

std::uint16_t PendingTable::add(const Call& call, std::uint64_t since_ns) {
  put(page_.n_in_flight, load(page_.n_in_flight) + 1);
  if (n_free_ == 0) return kNoEntry;
  const std::uint16_t entry = free_[--n_free_];
  if (entry >= load(page_.pending_used)) put(page_.pending_used, entry + 1U);
  ShownCall& to = page_.pending[entry];
  const std::uint64_t sequence = load(to.sequence);
  put(to.sequence, sequence + 1);
  put(to.since_ns, since_ns);
  put(to.agreed_ns, 0);
  put(to.kind, static_cast<std::uint64_t>(call.collective) | static_cast<std::uint64_t>(call.name.size()) << 8U);
  put(to.place, call.process_set | static_cast<std::uint64_t>(call.lane) << 32U);
  put(to.n_bytes, call.n_bytes);
  put_name(to.name, call.name.substr(0, sizeof(ShownCall::name)));
  put(to.sequence, sequence + 2);
  return entry;
}

void PendingTable::agree(std::uint16_t entry, std::uint64_t when_ns) {
  if (entry != kNoEntry) put(page_.pending[entry].agreed_ns, when_ns);
}

void PendingTable::remove(std::uint16_t entry) {
  put(page_.n_in_flight, load(page_.n_in_flight) - 1);
  if (entry == kNoEntry) return;
  put(page_.pending[entry].since_ns, 0);
  free_[n_free_++] = entry;
}

}  // namespace ciranda
