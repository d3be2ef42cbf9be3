// CollectiveCall: a call of a program, with the program's buffers: what the engine is asked for, and what is left to do
// when it has done it.
//
// Called by collective.hpp, gpu_collective.hpp, GpuFrame and look.hpp; any thread, one at a time.
#pragma once

#include <ciranda/table.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/jax/ffi.hpp"
#include "bindings/jax/memory.hpp"
#include "bindings/jax/parameters.hpp"

namespace ciranda::jax {

inline constexpr const char* kBinding = "ciranda.jax";

// XLA's code for the status of an operation that failed.
ffi::Code code_of(ciranda_status status);

// The size of the buffer; none if the engine has not its element type.
std::optional<std::size_t> n_bytes_of(const ffi::Buffer& buffer);

// Returns an error if the program's shapes depend on the number of ranks, and this number has changed; else "".
std::string size_problem(const Parameters& parameters, const ciranda_context* world);
// Returns an error if another call of the program has used the name in this run; else "".
std::string name_problem(const ffi::Frame& frame, const Parameters& parameters);

class CollectiveCall {
 public:
  CollectiveCall(Parameters parameters, Memory memory) : parameters_(std::move(parameters)), memory_(memory) {}

  // Reads the frame's buffers. Returns the error; "" if they are valid.
  std::string take(const ffi::Frame& frame, const ciranda_context* world);
  // Points into this object.
  ciranda_request request() const;
  std::size_t n_bytes() const;
  // Copies results from the engine's memory to XLA's. Returns the error; "" on success. REQUIRES: the operation of the
  // request has succeeded.
  std::string finish(const ciranda_operation* operation) const;

 private:
  struct Result {
    void* data;
    std::size_t n_bytes;
  };
  // Whether the engine writes results directly to XLA's memory. kIfItFits: only results of the size for which the
  // program was compiled. All other results are copied from the engine's memory.
  enum class Room { kAlways, kIfItFits, kNever };
  class Membership;

  Room room() const;
  bool has_size(const ffi::Buffer& input, const ffi::Buffer& output, const Membership& member) const;
  std::string rows_problem(const ciranda_output& found, const ciranda_tensor& tensor) const;

  Parameters parameters_;
  Memory memory_;
  std::vector<ciranda_tensor> tensors_;
  std::vector<Result> results_;
  bool has_room_ = false;
  bool is_root_ = false;
};

}  // namespace ciranda::jax
