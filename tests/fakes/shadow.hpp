// Shadow: which operations last read and wrote each byte of an allocation. It finds two uses of a byte of which one
// writes and neither happened before the other (the rule of FastTrack, by ranges of bytes).
//
// Threads: one at a time (the checker's lock).
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "vector_clock.hpp"

namespace ciranda::fakes {

// One operation that uses memory, for messages.
struct Use {
  Moment moment;
  std::string what;  // "cuMemcpyAsync, operation 3 of stream 1"
};
using UseOf = std::shared_ptr<const Use>;

struct Conflict {
  UseOf earlier;
  bool earlier_writes;
  std::size_t begin;  // the first bytes that both use
  std::size_t end;
};

class Shadow {
 public:
  // `use` reads or writes [begin, end) after all that `before` covers. Returns a use that is not ordered with it.
  std::optional<Conflict> touch(const UseOf& use, std::size_t begin, std::size_t end, bool writes,
                                const VectorClock& before);

  // Returns a use of any byte that `before` does not cover.
  std::optional<Conflict> find_unordered(const VectorClock& before) const;

 private:
  struct Segment {
    std::size_t end;
    UseOf write;               // the last, or null
    std::vector<UseOf> reads;  // after it, one a stream
  };
  using Segments = std::map<std::size_t, Segment>;  // by where they begin; they do not overlap

  static std::optional<Conflict> conflict_of(const Segments::value_type& segment, bool writes,
                                             const VectorClock& before);
  void split(std::size_t at);
  void fill_gaps(std::size_t begin, std::size_t end);

  Segments segments_;
};

}  // namespace ciranda::fakes
