// Failures: failed rounds that are not in the log yet, and the errors that members still owe.
//
// A failure is sent to each member that reported the round. A member that has not reported it *owes* it: its next
// report of the name gets the same error. A duplicate call need not occur on other members, so their deferred error
// expires. Pure.
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
  bool was_pending;  // the member's first call is not answered yet
};

class Failures {
 public:
  // Sends the failure to each member that reported the round; twice to the member with the `duplicate` call. The other
  // members owe it if `is_owed`. REQUIRES: the round is open.
  void fail(NamedRounds& name, const Members& members, ErrorKind kind, const std::string& text,
            const std::optional<DuplicateCall>& duplicate, bool is_owed = true);
  // The member calls the name. If it owes an error, sends that error to it and returns true.
  bool answer(NamedRounds& name, int member);
  // The member makes no further calls. Returns whether some failure of the name is now owed by no member.
  bool forgive(NamedRounds& name, int member);
  // All members have taken part in a round that opened after n_failed_before failures. Returns the names whose
  // duplicate errors have expired.
  std::vector<NamedRounds*> forgive_duplicates(std::uint64_t n_failed_before);

  // True if some member may still owe the error of a duplicate call.
  bool are_duplicates_owed() const { return !owed_duplicates_.empty(); }

  // How many rounds of all names have failed.
  std::uint64_t n_failed() const { return n_failed_; }

  std::vector<FailEntry> take();

 private:
  struct Failure {
    std::string name;
    ErrorKind kind;
    std::string text;
    std::vector<std::int32_t> members;  // in any order; a member may occur twice
  };

  // Sends the failure to `members`, to each as often as it is listed. Failures of one name keep their order; a failure
  // that equals the name's last one is merged with it.
  void add(NamedRounds& name, ErrorKind kind, const std::string& text, const std::vector<std::int32_t>& members);

  std::vector<Failure> failures_;
  std::vector<NamedRounds*> owed_duplicates_;  // names whose duplicate error some member owes
  std::uint64_t n_failed_ = 0;
};

}  // namespace ciranda
