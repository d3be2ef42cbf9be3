// Running: one collective, from its push into MXNet's engine until both engines are done with it. It is the object that
// native::Call holds.
//
// Ownership: references its arrays, and the world that the process was in when it was pushed.
// Threads: prepare() runs on the thread that pushes, Python's or, in a backward pass, one of MXNet's; submit() and
// submit_nothing() on a thread of MXNet's engine; end() on any thread, also within submit(), or under the progress
// lock. end() runs no operations: MXNet puts those that wait for the arrays into the queues of its own threads.
//
// Called by push() and plugin.cc; through native::Call by the engine, which ends it.
#pragma once

#include <ciranda/table.h>

#include <ciranda/native/call.hpp>
#include <ciranda/native/context.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/mxnet/layout.hpp"
#include "bindings/mxnet/mx_api.hpp"
#include "bindings/mxnet/pushed_names.hpp"

namespace ciranda::mxnet {

// The parameters of the call, from src/ciranda/mxnet/_plugin.py.
struct Asked {
  std::string name;
  std::int32_t collective;
  std::int32_t op;
  std::int32_t root;
  std::int32_t priority;
  std::uint64_t process_set;  // from id_of(): with its lane, and whether the call needs all ranks
  bool divides_by_all;
  bool is_chained;  // other arrays' dependencies make MXNet run it after the previous call of its name
  double prescale;
  double postscale;

  std::uint32_t set_number() const { return static_cast<std::uint32_t>(process_set); }
};

// The number of names of calls that are in MXNet's queues, or pending in one of the two engines.
std::size_t n_pushed_names();

class Running {
 public:
  explicit Running(Asked asked) : asked_(std::move(asked)) {}
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running();

  // Takes `count` arrays to read and as many to write, which may be the same. With a `carrier` the arrays are only
  // read, so that a broadcast's root can use what it sends, and the carrier gets the error of a failed call. Returns
  // the reason if the call is invalid; "" if no error is known yet.
  std::string prepare(ArrayHandle* inputs, ArrayHandle* outputs, std::size_t count, ArrayHandle carrier);

  // The arrays to read and to write, each variable of MXNet's once.
  std::vector<ArrayHandle> read() const;
  std::vector<ArrayHandle> written() const;

  // Submits the collective to our engine. `done` reports the end to MXNet.
  static void submit(std::unique_ptr<Running> running, const OnComplete& done);

  // For an operation that MXNet skips, as an array that it needs has failed on this rank: submits a shape that no other
  // rank has, so that the other ranks fail instead of waiting.
  static void submit_nothing(std::unique_ptr<Running> running);

  void end(const native::Outcome& outcome);

  int priority() const { return asked_.priority; }

  // Makes end() write a failure's message to `report`, for an engine of MXNet's that does not propagate errors.
  void report_to(std::shared_ptr<std::string> report) { report_ = std::move(report); }

 private:
  std::string problem_of(ArrayHandle array, std::int32_t* dtype) const;
  std::string problem_of_set() const;
  bool writes(ArrayHandle array) const;
  std::string take_tensors();
  bool outputs_overlap() const;
  ciranda_request request() const;
  // Records the outputs as failed, and fills them with 0xFF bytes (NaN, -1; 1 for bool), except those of in-place
  // calls.
  void fail_outputs(const std::string& message) const;
  // Records the outputs of an operation that MXNet has skipped.
  void leave_outputs() const;
  bool is_in_place(std::size_t i) const;
  void tell(ciranda_status status, const std::string& message);

  native::Context world_;
  Asked asked_;
  std::vector<Array> inputs_;
  std::vector<Array> outputs_;
  Copies copies_;
  Array carrier_;
  Uses uses_;
  bool has_name_ = false;
  std::vector<std::int32_t> dtypes_;
  std::vector<std::vector<std::int64_t>> shapes_;
  std::vector<ciranda_tensor> tensors_;
  OnComplete done_{};
  std::shared_ptr<std::string> report_;
};

}  // namespace ciranda::mxnet
