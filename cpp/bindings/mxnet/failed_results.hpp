// FailedResults: which arrays are the results of calls that have failed. MXNet forgets: it raises an error once, for
// all arrays that it concerns, and lets whoever reads them afterwards have what is there.
//
// A result that has failed is filled with bytes of all ones, NaN in the floating types, and counts as one as long as it
// has these. Arrays are not kept: what is gone is forgotten.
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
  void add(ArrayHandle array, const std::string& message);
  // What the array has failed with; "" if it has not. REQUIRES: nothing writes the array.
  std::string message_of(ArrayHandle array);

 private:
  struct Failed {
    std::weak_ptr<void> memory;
    std::shared_ptr<const std::string> message;
  };
  void forget_the_gone();

  std::mutex lock_;
  std::map<const void*, Failed> failed_;
  std::size_t most_ = 64;  // before those that are gone are looked for
};

// The one of this process.
FailedResults& failed_results();

// How many bytes an array has; 0 if MXNet does not know.
std::size_t n_bytes_of(ArrayHandle array, std::size_t n_bytes_of_element);

}  // namespace ciranda::mxnet
