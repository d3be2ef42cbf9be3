// Relay: passes on, as few messages, what the ranks of a subtree report: those of its host, and those that the relays
// of the hosts below pass to it (relay_tree.hpp). The log comes down the same way.
//
// It *gathers* reports of planned groups: that all ranks of the subtree are ready for a group is one number. All
// else it passes on as it came, with the ranks that said it: signatures, cache ids, duplicates, joins. A group of which
// something else is heard is *split*: what is known of it is passed on at once, rank by rank, and so is the rest, until
// the log executes a name of it. A rank's reports of a name, and its joins and duplicates, keep their order.
//
// What is gathered waits only for ranks without which nothing can be carried out. Yet the coordinator must hear of it,
// to see errors and to report who is missing: whoever uses this class has it let go of what it has held for long. Like
// the coordinator it is pure: no socket, thread or clock. "Rank" is a member of the lane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "agree/messages.hpp"
#include "agree/relay_tree.hpp"
#include "base/status.hpp"

namespace ciranda {

class Relay {
 public:
  // REQUIRES: `rank` is a relay of the tree, which outlives this only during the call.
  Relay(const RelayTree& tree, int rank);

  // From a rank of the host, itself included, or from a relay below. An error means that it breaks the rules.
  Status hear(int from, Message message);
  // A part of the log, which all of the subtree are about to get.
  void pass_down(const LogMessage& log);

  // Whether there is something to pass on; what it is. Its ranks are empty where all of the subtree are meant.
  bool has_news() const { return !news_.items.empty() || (is_waiting() && !has_said_waiting_); }
  RelayedMessage take();

  bool holds_any() const { return n_held_ > 0; }
  // What is gathered is passed on as it is.
  void let_go();

 private:
  struct Child {
    int rank;  // of the host, or of the relay below
    bool is_relay;
    std::vector<std::int32_t> ranks;  // whose reports come from it
    bool is_waiting = false;
  };
  struct Group {
    std::vector<bool> has_come;  // by child, for all of its ranks
    std::size_t n_come = 0;
    bool is_split = false;
  };

  bool is_waiting() const { return n_waiting_ > 0; }
  void set_waiting(Child& child, bool is_waiting);
  Status hear_relayed(std::size_t child, RelayedMessage message);
  void hear_report(std::size_t child, std::vector<std::int32_t> ranks, ReadyReport report);
  void hear_groups(std::size_t child, std::vector<std::int32_t> ranks, const GroupsMessage& message);
  void hear_group(std::size_t child, std::uint32_t number);
  void pass_on(std::vector<std::int32_t> ranks, ReadyReport report);
  void pass_on_for_all(std::uint32_t group);
  void split(std::uint32_t group);
  void split_group_of(std::uint32_t cache_id);
  void let_go(Group& group, std::uint32_t number);
  void plan(const PlanEntry& entry);
  void mend(std::uint32_t cache_id);

  std::vector<Child> children_;
  std::size_t n_waiting_ = 0;  // children
  bool has_said_waiting_ = false;
  bool gathers_ = false;      // not before groups are used, nor while ranks have joined
  std::size_t n_joined_ = 0;  // ranks of the subtree
  std::uint32_t plan_ = 0;
  std::vector<Group> groups_;
  std::unordered_map<std::uint32_t, std::uint32_t> group_of_id_;
  std::size_t n_held_ = 0;  // groups of which some have come
  RelayedMessage news_;
};

}  // namespace ciranda
