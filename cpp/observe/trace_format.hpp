// TraceFormat: formats records as events of Chrome's trace viewer, with Horovod's names. Each tensor has a row, such as
// "allreduce.weights". A call is the event NEGOTIATE_ALLREDUCE from its submission until the ranks have agreed on it,
// followed by the event ALLREDUCE until it is done. In NEGOTIATE_ALLREDUCE is a tick for each rank, an event without a
// length that has the rank's number as its name, at the time at which the coordinator, rank 0, learned that the rank
// had made the call. If a tick comes before rank 0's own call, NEGOTIATE_ALLREDUCE begins with the first one.
//
// A direct round in memory has no coordinator. Rank 0 knows when it arrived itself, and of two ranks when it saw the
// other.
//
// From begin() to end() the text is a JSON array. Called by Engine, which makes it for a timeline; no I/O.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "observe/record_format.hpp"

namespace ciranda {

class TraceFormat final : public RecordFormat {
 public:
  // `marks_cycles`: also adds an event CYCLE_START at the time of agreement, once for all calls agreed on together.
  TraceFormat(int rank, bool marks_cycles) : rank_(rank), marks_cycles_(marks_cycles) {}

  bool wants_arrivals() const override { return true; }
  void begin(std::int64_t epoch_us, std::string& to) override;
  void add(const Record& record, std::string& to) override;
  void add_step(std::uint64_t /*n_steps*/, std::int64_t /*at_ns*/, std::string& /*to*/) override {}  // Horovod has none
  void add_lost(std::uint64_t n_records, std::int64_t at_ns, std::string& to) override;
  void end(std::string& to) override { to += "\n]\n"; }

 private:
  struct Row {
    int number;
    std::int64_t until_ns = 0;                   // the end of the last call
    std::vector<std::int64_t> arrivals_ns = {};  // at the next ones
  };

  Row& row_of(const Record& record, std::string& to);
  void describe(std::string_view what, int row, std::string_view key, std::string_view value, std::string& to);
  void open_event(std::string_view name, std::string_view phase, int row, std::string& to);
  void add_tick(int rank, int row, std::int64_t at_ns, std::string& to);
  std::int64_t begin_of(const Record& record, std::int64_t agreed_ns, Row& row) const;
  void add_span(std::string_view prefix, const Record& record, int row, std::int64_t from_ns, std::int64_t to_ns,
                std::string& to);

  int rank_;
  bool marks_cycles_;
  bool is_first_ = true;
  std::int64_t last_agreed_ns_ = 0;
  std::unordered_map<std::string, Row> rows_;  // by the row's name
  std::string row_name_;                       // of the record that is being added
};

}  // namespace ciranda
