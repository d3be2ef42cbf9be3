// A fake of what is used of MXNet: arrays, and an engine that runs an operation when what it reads and writes is free,
// on threads of its own. An operation that reads or writes what has failed is left out, and what it writes fails as
// well.
//
// The functions of MXNet's C API that the binding finds by name are in fake_mxnet.cc.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "bindings/mxnet/mx_api.hpp"

namespace ciranda::mxnet::fake {

// An array of floats in memory of its own; the handle is given back by MXNDArrayFree().
Array make(const std::vector<float>& values);

// Waits until nothing writes the array. `error` is what it has failed with; "" if it has not.
struct Read {
  std::vector<float> values;
  std::string error;
};
Read read(const Array& array);

// Waits as well, and raises what the array has failed with, as MXNet does: once for all arrays that it concerns. "" if
// there is nothing to raise.
std::string raise(const Array& array);

// Adds `summand` to the array, as an operation.
void push_add(const Array& array, float summand);

// Fails the array, as an operation that writes it does.
void fail(const Array& array, const std::string& error);

// Brings the array into a layout of "oneDNN's", which has the negatives of its numbers, and counts how often one is
// brought out of it, in place or as a copy.
void lay_out_otherwise(const Array& array);
std::atomic<int>& n_reordered();

// How many operations have failed in a thread that is not of the engine: MXNet adds their errors to a list that it does
// not lock.
std::atomic<int>& n_failed_elsewhere();

// Waits until all operations have ended.
void wait_for_all();

// How many arrays there are, and how many references to them.
std::int64_t live_memories();
std::int64_t live_handles();

}  // namespace ciranda::mxnet::fake
