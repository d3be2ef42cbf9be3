#include "engine/reports.hpp"

#include <utility>

namespace ciranda {
namespace {

// The longest time that a request waits for the rest of its planned group after the last request.
constexpr std::chrono::milliseconds kBatchingWindow{20};

}  // namespace

Reports::Reports(HeldGroups& held, PendingCalls& calls, LaneLog& log, ControlPlane& control)
    : held_(held), calls_(calls), log_(log), control_(control), holding_(kBatchingWindow) {}

void Reports::add(Message message, TimePoint now) {
  if (auto* ready = std::get_if<ReadyMessage>(&message)) {
    holding_.update(held_.any(), ready->items.empty(), now);
    for (ReadyMessage::Item& item : ready->items) ready_.items.push_back(std::move(item));
  } else if (const auto* groups = std::get_if<GroupsMessage>(&message)) {
    groups_.plan = groups->plan;
    groups_.groups.push_back(groups->groups.front());
    holding_.update(held_.any(), true, now);
  } else {
    release(now);
    send(message, now);
  }
}

void Reports::add_late(TimePoint now) {
  for (const DuplicateMessage& late : calls_.take_late()) {
    control_.hurry();
    add(late, now);
  }
}

void Reports::release(TimePoint now) {
  if (held_.any()) add(held_.release(), now);
}

void Reports::send(const Message& message, TimePoint now) {
  send(now);
  log_.report(message, now);
}

void Reports::send(TimePoint now) {
  if (!ready_.items.empty()) log_.report(std::exchange(ready_, {}), now);
  if (!groups_.groups.empty()) log_.report(std::exchange(groups_, {}), now);
}

void Reports::send_due(TimePoint now) {
  if (holding_.is_over(now)) release(now);
  send(now);
}

bool Reports::report_waiting() {
  if (std::exchange(is_waiting_, true)) return false;
  control_.hurry();
  add(WaitingMessage{}, std::chrono::steady_clock::now());
  return true;
}

}  // namespace ciranda
