// InFlight: the requests of this rank that have been submitted and not completed, by ticket.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "complete/operation.hpp"
#include "engine/names_in_use.hpp"
#include "negotiate/participant.hpp"
#include "request/request.hpp"

namespace ciranda {

class InFlight {
 public:
  struct Entry {
    Request request;
    std::shared_ptr<Operation> operation;  // null: the ticket is free
    bool holds_name = false;               // not if it was refused as a duplicate and is only to be answered
    bool is_executing = false;
    Status outcome = Status::ok_status();     // of what was carried out, for those who execute
    std::shared_ptr<std::byte> scratch = {};  // memory of a request that stands in for a rank that has joined
  };

  // Both outlive this. `output_memory`: for the results of requests.
  InFlight(NamesInUse& names, const OutputMemory& output_memory) : names_(names), output_memory_(output_memory) {}

  const OutputMemory& output_memory() const { return output_memory_; }

  Participant::Ticket add(Request request, std::shared_ptr<Operation> operation, bool holds_name) {
    if (request.is_deferrable) ++n_deferrable_;
    Entry entry{std::move(request), std::move(operation), holds_name};
    if (free_.empty()) {
      entries_.push_back(std::move(entry));
      return entries_.size() - 1;
    }
    const Participant::Ticket ticket = free_.back();
    free_.pop_back();
    entries_[ticket] = std::move(entry);
    return ticket;
  }

  // Whether a request that may be held back has not begun to execute.
  bool has_deferrable() const { return n_deferrable_ > 0; }
  // Whether there is any other request, or one that executes.
  bool has_undeferrable() const { return entries_.size() - free_.size() > n_deferrable_; }
  void begin(Participant::Ticket ticket) {
    entries_[ticket].is_executing = true;
    if (entries_[ticket].request.is_deferrable) --n_deferrable_;
  }

  Entry& at(Participant::Ticket ticket) { return entries_[ticket]; }

  void complete(Participant::Ticket ticket, const Status& status) {
    Entry& done = entries_[ticket];
    if (done.request.is_deferrable && !done.is_executing) --n_deferrable_;
    if (done.holds_name) names_.release(done.request);  // first: who sees it done may use the name again
    const std::shared_ptr<Operation> operation = std::move(done.operation);
    done = {};
    free_.push_back(ticket);
    operation->complete(status);  // whose callback may submit
  }

  // Completes all, or all that are not executing.
  void complete_all(const Status& status, bool also_executing) {
    for (Participant::Ticket ticket = 0; ticket < entries_.size(); ++ticket) {
      const Entry& entry = entries_[ticket];
      if (entry.operation && (also_executing || !entry.is_executing)) complete(ticket, status);
    }
  }

  bool empty() const { return free_.size() == entries_.size(); }

 private:
  NamesInUse& names_;
  const OutputMemory& output_memory_;
  std::vector<Entry> entries_;
  std::vector<Participant::Ticket> free_;
  std::size_t n_deferrable_ = 0;
};

}  // namespace ciranda
