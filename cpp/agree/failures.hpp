// Failures: failed negotiations that are not in the log yet, and deferred errors.
//
// A failure is sent to each member that reported the name. For a member that has not, it is a *deferred error*: its
// next report of the name gets the same error. Only one member may have made a duplicate call, and the others never
// report one. So the deferred errors of duplicates expire (expire_duplicates). Called by Negotiations; pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agree/members.hpp"
#include "agree/messages.hpp"
#include "agree/negotiation.hpp"
#include "base/status.hpp"

namespace ciranda {

struct DuplicateCall {
  int member;
  bool was_pending;  // the member's first call is not answered yet
};

class Failures {
 public:
  // Sends the failure to each member that reported the name; twice to the member with the `duplicate` call. It is
  // deferred for the other members if `fails_late_calls`. REQUIRES: the negotiation is open.
  void fail(NameState& name, const Members& members, ErrorKind kind, const std::string& text,
            const std::optional<DuplicateCall>& duplicate, bool fails_late_calls = true);
  // The member calls the name. If an error is deferred for it, sends that error and returns true.
  bool answer(NameState& name, int member);
  // The member makes no further calls. Returns whether some failure of the name is now deferred for no member.
  bool drop(NameState& name, int member);
  // All members have taken part in a negotiation that opened after n_failed_before failures. Returns the names whose
  // duplicate errors have expired.
  std::vector<NameState*> expire_duplicates(std::uint64_t n_failed_before);

  // True if the error of a duplicate call is still deferred for some member.
  bool has_deferred_duplicates() const { return !deferred_duplicates_.empty(); }

  // How many negotiations of all names have failed.
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
  void add(NameState& name, ErrorKind kind, const std::string& text, const std::vector<std::int32_t>& members);

  std::vector<Failure> failures_;
  std::vector<NameState*> deferred_duplicates_;  // names with the deferred error of a duplicate call
  std::uint64_t n_failed_ = 0;
};

}  // namespace ciranda
