// FailedResults: the arrays that have failed, and their errors. MXNet raises an error only once, for all arrays that it
// concerns, and returns their contents to later reads.
//
// An array counts as failed until an operation has written to it, which MXNet counts (version_of()). As long as an
// error has not been raised, MXNet skips operations that would write the arrays that it concerns, and counts them as
// well: raised() ends this. Arrays are not kept alive: a deleted one is forgotten.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "bindings/mxnet/mx_api.hpp"

namespace ciranda::mxnet {

class FailedResults {
 public:
  // An output of a failed operation, before the operation ends for MXNet.
  void add(ArrayHandle array, const std::string& message);
  // An output of an operation that MXNet has skipped.
  void add_left_out(ArrayHandle array, const std::string& message);
  // An array for which MXNet has raised an error.
  void add_raised(ArrayHandle array, const std::string& message);
  // MXNet has raised an error, which no longer causes skipped operations. An empty text: it has raised all errors.
  void raised(const std::string& text);
  // The array's error; "" if it has not failed. REQUIRES: nothing writes the array.
  std::string message_of(ArrayHandle array);

 private:
  struct Failed {
    std::weak_ptr<void> memory;
    std::size_t version;
    std::string message;
    bool is_raised;
  };
  using All = std::map<const void*, Failed>;

  void note(ArrayHandle array, const std::string& message, std::size_t n_more_writes, bool is_raised);
  All::iterator find(ArrayHandle array);
  void forget_the_gone();

  std::mutex lock_;
  All failed_;
  std::size_t most_ = 64;  // the size at which deleted arrays are removed
};

// This process's instance.
FailedResults& failed_results();

}  // namespace ciranda::mxnet
