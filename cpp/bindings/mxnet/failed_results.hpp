// FailedResults: the arrays that have failed, and their errors. An error may concern several arrays. MXNet raises it
// only once; later reads of these arrays return their contents.
//
// An array counts as failed until an operation writes to it; MXNet counts these writes (version_of()). Until an error
// is raised, MXNet skips the operations that write its arrays, but counts them as writes: raised() ends this. Arrays
// are not kept alive; deleted arrays are removed.
//
// Threads: any.
//
// Called by plugin.cc and Running.
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
  // Adds an output of a failed operation, before the operation ends for MXNet.
  void add(ArrayHandle array, const std::string& message);
  // Adds an output of an operation that MXNet has skipped.
  void add_left_out(ArrayHandle array, const std::string& message);
  // Adds an array for which MXNet has raised an error.
  void add_raised(ArrayHandle array, const std::string& message);
  // Notes that MXNet has raised the error with this text ("": all errors), and so no longer skips operations for it.
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
