#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "execute/collectives/functions.hpp"

namespace ciranda {
namespace {

const std::vector<std::int32_t>& absent(const Participant::Ready& ready) {
  static const std::vector<std::int32_t> nobody;
  return ready.absence ? ready.absence->absent : nobody;
}

// An entry is executed as its first request says, so the other requests must agree with that one.
Status check_that_they_travel_together(const Participant::Execute& entry, InFlight& in_flight) {
  const Participant::Ready& head = entry.requests.front();
  const Request& first = *in_flight.at(head.ticket).request;
  for (std::size_t i = 1; i < entry.requests.size(); ++i) {
    const Request& other = *in_flight.at(entry.requests[i].ticket).request;
    const bool is_alike = can_travel_together(first.signature, other.signature);
    const bool is_same_way = entry.requests[i].way == head.way;
    if (is_alike && is_same_way && absent(entry.requests[i]) == absent(head)) continue;
    return Status::internal("the log has " + call_text(first) + " together with " + call_text(other) +
                            ", which cannot be carried out as one");
  }
  return Status::ok_status();
}

}  // namespace

std::vector<const Request*> requests_of(const Participant::Execute& entry, InFlight& in_flight) {
  std::vector<const Request*> requests;
  for (const Participant::Ready& ready : entry.requests) requests.push_back(in_flight.at(ready.ticket).request.get());
  return requests;
}

std::vector<int> contributors(const Participant::Execute& entry, int n_members) {
  std::vector<int> members;
  const auto& absence = entry.requests.front().absence;  // the same for all requests of an entry
  for (int member = 0; member < n_members; ++member) {
    const bool is_absent =
        absence && std::find(absence->absent.begin(), absence->absent.end(), member) != absence->absent.end();
    if (!is_absent) members.push_back(member);
  }
  return members;
}

Result<Work> make_plans(const Participant::Execute& entry, InFlight& in_flight, const Mesh& mesh) {
  if (entry.requests.empty()) return Work{};
  if (Status status = check_that_they_travel_together(entry, in_flight); !status.ok()) return status;
  MakeWork* const make = functions(in_flight.at(entry.requests.front().ticket).request->signature.collective).work;
  if (make == nullptr) return Work{};
  Result<Work> made = make(entry, in_flight, mesh);
  if (!made.ok()) return made.status();
  Work work = std::move(made).value();
  for (Plan& plan : work.plans) plan.n_average = mesh.size();
  return work;
}

}  // namespace ciranda
