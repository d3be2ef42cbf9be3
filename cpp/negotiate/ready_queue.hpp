// ReadyQueue: names that are ready on all members, until they are carried out: which of them go now, which are kept
// back for the rest of their planned group (learned_order.hpp), and which travel together. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "negotiate/learned_order.hpp"
#include "negotiate/round.hpp"

namespace ciranda {

class ReadyQueue {
 public:
  using Batch = std::vector<NamedRounds*>;

  // A batch has at most max_batch_bytes, or one name.
  ReadyQueue(bool learns_order, std::size_t max_batch_bytes);

  // REQUIRES: the name's round is complete; it stays as it is until it is taken or removed.
  void push(NamedRounds& name);
  void remove(NamedRounds& name);
  bool is_empty() const { return waiting_.empty(); }

  // In the order in which they became ready. While the wire is busy, little is kept back to travel with what comes;
  // where it is urgent, groups are not waited for.
  std::vector<Batch> take(bool wire_is_idle, bool is_urgent);

 private:
  struct Waiting {
    NamedRounds* name;
    std::optional<std::uint32_t> group;
    std::uint64_t plan;  // the group's
  };
  bool is_held(const Waiting& waiting) const;
  void leave_group(const Waiting& waiting);
  std::vector<Batch> batches_of(const Batch& names) const;
  static bool can_travel_with(const NamedRounds& head, const NamedRounds& other);

  bool learns_order_;
  std::size_t max_batch_bytes_;
  std::vector<Waiting> waiting_;  // in the order in which they became ready
  LearnedOrder order_;
  std::uint64_t plan_ = 0;               // that n_in_group_ counts for
  std::vector<std::size_t> n_in_group_;  // waiting names by planned group
};

}  // namespace ciranda
