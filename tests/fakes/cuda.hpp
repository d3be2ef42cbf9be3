// The fake driver: a libcuda.so.1 for machines without a GPU, with the part of the driver API that the engine calls
// (cpp/backend/cuda/driver_api.hpp). A program whose LD_LIBRARY_PATH leads to it finds it as it finds the real one.
//
// What it is like:
//   device memory   pages without access for the host's threads; other processes open it by CUDA IPC
//   streams         a thread each, with seeded delays; a launch queue of 8, and who gives a ninth operation is blocked
//   contexts        a property of the thread: calls without one fail; who is blocked in a call blocks the context
//   kernels         the host twins of the engine's (twins.hpp), and a few of its own (plain_kernels.hpp)
//   pageable copies from the host have read it when the call returns, to the host return when they are done
//   errors          those that end a context (illegal address, ECC, ...) are what all later calls return
// What it is not: memory of a device is limited for each process by itself; priorities mean nothing; no stream waits
// for a value in memory, since that function does not exist here.
//
// The checker (checker.hpp) ends a program that uses memory without order, after its end or beyond it, an event before
// its record, or a handle after its end; a thread of the host that touches device memory, or pinned memory before it
// knows that a stream is done with it (in whole pages). It writes what both sides are, with the numbers of streams: the
// default stream of a context is made with it, and all are numbered from 1 on as they are made.
//
// Settings, in the environment:
//   FAKE_CUDA_DEVICES=n           GPUs of the host (1). CUDA_VISIBLE_DEVICES chooses among them, by number
//   FAKE_CUDA_VERSION=v           of the driver, 1000 * major + 10 * minor (13000)
//   FAKE_CUDA_INIT=e              cuInit fails with error e
//   FAKE_CUDA_MISSING=f,...       functions that cuGetProcAddress does not find, without the version of their signature
//   FAKE_CUDA_FAIL=f:k:e,...      the k-th call of f fails with error e; f = *: the k-th call of any function; e =
//   hangs:
//                                 it never returns
//   FAKE_CUDA_FAIL_RUN=f:k:e,...  the k-th operation of f that runs fails, which ends its context
//   FAKE_CUDA_STILL=s:o:file,...  operation o of stream s, each from 1 on, does not begin before the file exists
//   FAKE_CUDA_DELAY_SEED=n        one operation in four is delayed (0: none), by at most
//   FAKE_CUDA_DELAY_US=n          microseconds (200)
//   FAKE_CUDA_QUEUE=n             operations that a stream has, beyond which calls block (8)
//   FAKE_CUDA_MEMORY=n            bytes of memory of each device (16 GiB)
//   FAKE_CUDA_PINNED=n            bytes of pinned and registered memory (16 GiB)
//   FAKE_CUDA_IPC=how             no_export, no_import: refused; within: a process may open its own memory as well
//   FAKE_CUDA_REGISTER=0          cuMemHostRegister is refused
//   FAKE_CUDA_CHECK=0             no checker: wrong uses return errors where the driver does
//   FAKE_CUDA_THREADS_APART=1     what one thread knows to be done, others do not
//   FAKE_CUDA_CONTEXT_LOCK=0      who is blocked in a call blocks no others
#pragma once

#include <cstdint>

#pragma GCC visibility push(default)
extern "C" {
namespace ciranda::fakes {

// Streams can be captured (captures.hpp) into graphs (graph.hpp).

// A program that was not linked with the fake finds these by dlsym.

// Sets one of the settings, or unsets it (null), while the program runs; calls are counted from zero again.
void fake_cuda_set(const char* name, const char* value);

// Calls until now, but for cuGetProcAddress and those that name errors.
std::uint64_t fake_cuda_n_calls();
// Of one function.
std::uint64_t fake_cuda_n_calls_of(const char* name);

}  // namespace ciranda::fakes
}
#pragma GCC visibility pop
