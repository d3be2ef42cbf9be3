#include "observe/shown_calls.hpp"

#include <algorithm>

#include "observe/put_words.hpp"

namespace ciranda {

// A process that was killed while it wrote an entry has left an odd number.
ShownCalls::ShownCalls(CounterPage& page) : page_(page) {
  const std::size_t n_used = std::min<std::size_t>(load(page.shown_used), kPageShown);
  for (std::size_t i = 0; i < n_used; ++i) {
    ShownCall& call = page.shown[i];
    put(call.since_ns, 0);
    put(call.sequence, load(call.sequence) + load(call.sequence) % 2);
  }
  put(page.shown_used, 0);
  put(page.n_in_flight, 0);
}

// As few entries as possible are used, so that their cache lines are at hand.
std::uint16_t ShownCalls::take() {
  const std::uint64_t n_used = load(page_.shown_used);
  if (n_ended_ < kPageEnded && n_used < kPageShown) {
    put(page_.shown_used, n_used + 1);
    return static_cast<std::uint16_t>(n_used);
  }
  if (n_ended_ == 0) return kNoEntry;
  --n_ended_;
  return ended_[first_ended_++ % kPageShown];
}

std::uint16_t ShownCalls::add(const Call& call, std::uint64_t since_ns) {
  put(page_.n_in_flight, load(page_.n_in_flight) + 1);
  const std::uint16_t entry = take();
  if (entry == kNoEntry) return kNoEntry;
  ShownCall& to = page_.shown[entry];
  const std::uint64_t sequence = load(to.sequence);
  put(to.sequence, sequence + 1);
  put(to.since_ns, since_ns);
  put(to.ended_ns, 0);
  put(to.kind, static_cast<std::uint64_t>(call.collective) | static_cast<std::uint64_t>(call.name.size()) << 32U);
  put(to.place, call.process_set | static_cast<std::uint64_t>(call.lane) << 32U);
  put(to.n_bytes, call.n_bytes);
  put_name(to.name, call.name.substr(0, sizeof(ShownCall::name)));
  put(to.sequence, sequence + 2);
  return entry;
}

}  // namespace ciranda
