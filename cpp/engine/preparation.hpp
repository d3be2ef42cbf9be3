// Preparation: what is done with a request when it is submitted, before anybody else sees it: it is checked, as far as
// this rank can, and what was left out is filled in. What has no name of its own gets its number later
// (auto_names.hpp): a call that is refused here uses up none, which would set ranks apart.
//
// Any thread.
#pragma once

#include "agree/process_sets.hpp"
#include "base/status.hpp"
#include "call/request.hpp"

namespace ciranda {

class Preparation {
 public:
  // `rank`: in the world. The references outlive this.
  Preparation(int rank, const ProcessSets& sets) : rank_(rank), sets_(sets) {}

  // Not ok: it is refused.
  Status prepare(Request& request) const;

 private:
  Status check(Request& request) const;
  static void complete_name(Request& request, bool is_unnamed);

  int rank_;
  const ProcessSets& sets_;
};

}  // namespace ciranda
