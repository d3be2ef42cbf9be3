// Preparation: what is done with a request when it is submitted, before anybody else sees it: it is checked, as far as
// this rank can, what was left out is filled in, and what has no name gets one.
//
// Any thread.
#pragma once

#include "base/status.hpp"
#include "engine/auto_names.hpp"
#include "engine/process_sets.hpp"
#include "request/request.hpp"

namespace ciranda {

class Preparation {
 public:
  // `rank`: in the world. The references outlive this.
  Preparation(int rank, const ProcessSets& sets, AutoNames& auto_names)
      : rank_(rank), sets_(sets), auto_names_(auto_names) {}

  // Not ok: it is refused.
  Status prepare(Request& request) const;

 private:
  Status check(Request& request) const;
  void complete_name(Request& request, bool is_unnamed) const;

  int rank_;
  const ProcessSets& sets_;
  AutoNames& auto_names_;
};

}  // namespace ciranda
