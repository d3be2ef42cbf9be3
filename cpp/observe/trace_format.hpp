// TraceFormat: formats records as events of Chrome's trace viewer, with Horovod's names. Each tensor has a row, such as
// "allreduce.weights". A call is the event NEGOTIATE_ALLREDUCE from its submission until the ranks have agreed on it,
// followed by the event ALLREDUCE until it is done.
//
// From begin() to end() the text is a JSON array. Called by Engine, which makes it for a timeline; no I/O.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "observe/record_format.hpp"

namespace ciranda {

class TraceFormat final : public RecordFormat {
 public:
  // `marks_cycles`: also adds an event CYCLE_START at the time of agreement, once for all calls agreed on together.
  TraceFormat(int rank, bool marks_cycles) : rank_(rank), marks_cycles_(marks_cycles) {}

  void begin(std::int64_t epoch_us, std::string& to) override;
  void add(const Record& record, std::string& to) override;
  void add_step(std::uint64_t /*n_steps*/, std::int64_t /*at_ns*/, std::string& /*to*/) override {}  // Horovod has none
  void add_lost(std::uint64_t n_records, std::int64_t at_ns, std::string& to) override;
  void end(std::string& to) override { to += "\n]\n"; }

 private:
  int row_of(const Record& record, std::string& to);
  void describe(std::string_view what, int row, std::string_view key, std::string_view value, std::string& to);
  void open_event(std::string_view name, std::string_view phase, int row, std::string& to);
  void add_span(std::string_view prefix, const Record& record, int row, std::int64_t from_ns, std::int64_t to_ns,
                std::string& to);

  int rank_;
  bool marks_cycles_;
  bool is_first_ = true;
  std::int64_t last_agreed_ns_ = 0;
  std::unordered_map<std::string, int> rows_;  // by the row's name
  std::string row_name_;                       // of the record that is being added
};

}  // namespace ciranda
