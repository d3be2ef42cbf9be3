// Lane: how it ends: a member leaves, the world breaks, or the lane is taken down.
#include <algorithm>

#include "engine/lane.hpp"

namespace ciranda {

void Lane::heed(const Departure& departure) {
  log_end_ = std::min(log_end_, departure.log_index(id_));
  if (!parting_) {
    parting_ = Status::aborted(control_.peer_text(departure.rank) +
                               " has shut down, so nothing that needs all ranks can be done any more. Ranks must make "
                               "the same number of calls before they shut down.");
  }
  give_up_data(*parting_);
  leave_rounds();
  by_messages_.hear_end(member(departure.rank));
  if (goes_by_messages_) say_no_more_inputs();
}

// From the end of the log on. If that cuts short what is under way, other lanes must get past it.
void Lane::give_up_data(const Status& why) {
  if (data_.n_executed() >= log_end_) mux_.abandon(id_);
  data_.give_up_from(log_end_, why);
}

// What is not agreed on by the end of the log will never be. A round to which all have sent their inputs is; the inputs
// may still be on their way.
void Lane::fail_what_cannot_come() {
  if (!parting_ || n_logged_ < log_end_) return;
  in_flight_.complete_all(*parting_, false);
  for (const Participant::Ticket ticket : by_messages_.lost()) {
    by_messages_.forget(ticket);
    in_flight_.complete(ticket, *parting_);
  }
}

void Lane::give_up(const Status& why) {
  log_end_ = 0;
  if (!parting_) parting_ = why;
  leave_rounds();
  give_up_data(why);
  by_messages_.clear();
  in_flight_.complete_all(why, true);
}

void Lane::end(const Status& why) {
  if (!parting_) parting_ = why;
  leave_rounds();
  log_.end(why);
}

}  // namespace ciranda
