// Attributes: the parameters of an op's call in a graph, except the tensors. Every op has all attributes, so that one
// function reads them; src/ciranda/tensorflow/_execution.py writes them.
// Called by ops.hpp, Run and xla.hpp; any thread.
#pragma once

#include <ciranda/table.h>

#include <array>
#include <cstdint>
#include <string>

#include "bindings/tensorflow/tf_api.hpp"

namespace ciranda::tensorflow {

inline constexpr std::array kAttributeSpecs = {
    // The name of the call in the engine; "" without `node_name`: the call is numbered.
    "tensor_name: string",
    // The op's name when it was traced; "" if it was not.
    "node_name: string",
    "reduce_op: int",
    "root_rank: int",
    // Numbers of 64 bits in decimal notation, as attributes of type float have 32.
    "prescale_factor: string",
    "postscale_factor: string",
    // The number from ciranda.process_sets.id_of(): the process set, the lane, and whether the call needs all ranks.
    "process_set: int",
    "flags: int",
    // The number of concurrent iterations of a loop around the op.
    "iterations: int = 1024",
};

struct Attributes {
  std::string name;  // "": none
  ciranda_reduce_op reduce_op = CIRANDA_SUM;
  std::int32_t root_rank = -1;
  double prescale = 1.0;
  double postscale = 1.0;
  std::uint64_t process_set = 0;  // from ciranda.process_sets.id_of()
  std::uint32_t flags = 0;
  std::int64_t iterations = 1024;

  // Reads the attributes when a kernel is created. On failure `status` has the reason.
  static Attributes read(TF_OpKernelConstruction* construction, const Status& status);

  // Returns a request without tensors, for a callback that only forwards. It points into this object.
  ciranda_request request(ciranda_collective collective) const;
};

// Reads a text attribute of an op. On failure `status` has the reason.
std::string read_string(TF_OpKernelConstruction* construction, const char* name, const Status& status);

// Returns the name of a call whose op was traced as `traced` and is now the node `node`. If TensorFlow has inlined the
// op's function, the node's name begins with the name of the function's call, which distinguishes several calls.
// Numbers that TensorFlow takes from the rest of the graph ("/_7") are left out, since they may differ between ranks.
std::string name_of_call(const std::string& tensor_name, const std::string& traced, const std::string& node);

}  // namespace ciranda::tensorflow
