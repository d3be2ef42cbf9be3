// Failures: of rounds, until they go into the log, and what members still owe.
//
// Each member that reported the round is told, and so is each that reports it later: it *owes* the call. Only one
// member may make a duplicate call, so nobody owes that of another for ever. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agree/members.hpp"
#include "agree/messages.hpp"
#include "agree/round.hpp"
#include "base/status.hpp"

namespace ciranda {

struct DuplicateCall {
  int member;
  bool was_pending;  // its first call is not answered yet
};

class Failures {
 public:
  // Each member that reported the round is told once, the one that did so twice (`duplicate`) twice; the rest owe it,
  // if it `is_owed`. REQUIRES: the round is open.
  void fail(NamedRounds& name, const Members& members, ErrorKind kind, const std::string& text,
            const std::optional<DuplicateCall>& duplicate, bool is_owed = true);
  // Whether a call that the member makes now is one that it owed: it is told.
  bool answer(NamedRounds& name, int member);
  // The member makes no further calls. Whether the name is owed less for it.
  bool forgive(NamedRounds& name, int member);
  // All members have taken part in a round, which opened when n_failed_before had failed. Returns whose duplicates
  // nobody owes any more.
  std::vector<NamedRounds*> forgive_duplicates(std::uint64_t n_failed_before);

  // Whether some member owes a duplicate call, as far as the coordinator knows.
  bool are_duplicates_owed() const { return !owed_duplicates_.empty(); }

  // Rounds of all names that have failed.
  std::uint64_t n_failed() const { return n_failed_; }

  std::vector<FailEntry> take();

 private:
  struct Failure {
    std::string name;
    ErrorKind kind;
    std::string text;
    std::vector<std::int32_t> members;  // in any order
  };

  // For these members, each as often as it stands there. Those of a name keep their order; one that says the same as
  // the name's last is for these members too.
  void add(NamedRounds& name, ErrorKind kind, const std::string& text, const std::vector<std::int32_t>& members);

  std::vector<Failure> failures_;
  std::vector<NamedRounds*> owed_duplicates_;  // names some member owes a duplicate's error
  std::uint64_t n_failed_ = 0;
};

}  // namespace ciranda
