// Engine: takes requests, agrees on them with the other ranks, executes them, and completes their operations.
//
// Called by Worlds, Session, EngineHandle, OperationHandle, tables.cc, context.cc, memory.cc, capi/operation.cc and
// capi/recording.cc, through handles.hpp; made by connect(); shared_memory.cc has allocate_shared().
//
// Threads: create(), shutdown() and the destructor by one thread; everything else by any thread at any time, without a
// lock: where a function needs the progress lock, ProgressThreads takes it. At any moment at most one thread runs the
// *progress loop* (holds the progress lock): which, docs/threads.md says. Callbacks run on threads of their own
// (call/callback_threads.hpp) and may call everything, shutdown() included, except where a function says otherwise.
// Direct callbacks (call/callbacks.hpp) must not wait.
// Failure: nothing throws. When a rank is lost, every pending and later operation fails with RanksLost, which names it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agree/persistent_op.hpp"
#include "backend/candidate.hpp"
#include "backend/registry.hpp"
#include "base/config.hpp"
#include "base/exported.hpp"
#include "base/status.hpp"
#include "call/call.hpp"
#include "call/callbacks.hpp"
#include "call/operation.hpp"
#include "observe/counter_page.hpp"
#include "observe/recording.hpp"
#include "progress/long_waits.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

class SharedRegions;

struct SharedAllocation {
  OutputBuffer buffer;     // of zeroed bytes; page-aligned if it is shared
  bool is_shared = false;  // has the same value on all ranks
};

class Engine {
 public:
  using OperationPtr = std::shared_ptr<Operation>;
  // Called during a wait, so that a signal can end it: true gives the wait up. The operation stays pending.
  using Interrupted = std::function<bool()>;

  // The engine owns the mesh and starts its background thread.
  // `backends`: for host memory and for devices; they outlive the engine. `may_others_call` tells whether another
  // thread of the process can still make a call (agree/standstill.hpp). Without it, this rank never reports that it is
  // at a standstill.
  static std::unique_ptr<Engine> create(std::unique_ptr<Mesh> mesh, const Config& config,
                                        std::span<const BackendRow> backends = all_backends(),
                                        MayOthersCall may_others_call = nullptr);
  ~Engine();  // shutdown(), if that was not called

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  CIRANDA_EXPORTED int rank() const;
  CIRANDA_EXPORTED int size() const;
  CIRANDA_EXPORTED const PeerInfo& peer(int rank) const;
  // True if all ranks share memory with this rank.
  CIRANDA_EXPORTED bool shares_memory_with_all() const;

  // Begins a call. Never blocks. A call without a name gets one by its number, so all ranks must make such calls in the
  // same order. For an invalid call the returned operation has already failed. The tensors' memory must stay valid
  // until the operation is done. `handle`, here and below, belongs to the caller; one thread at a time may use it. It
  // saves the lookup of the name if its last call in this engine had the same name and lane.
  CIRANDA_EXPORTED OperationPtr submit(const Call& call, Operation::Callback callback = nullptr,
                                       OpHandle* handle = nullptr);

  // Begins a call for which the caller waits at once. Returns null if the call is done and has succeeded, which it may
  // have if all ranks have agreed on it before. Otherwise returns the operation to wait() for; it is done already if it
  // only holds the output.
  CIRANDA_EXPORTED OperationPtr run(const Call& call, OpHandle* handle = nullptr);

  // Returns InvalidArgument inside a direct callback, where wait() and shutdown() are refused. `what` names the refused
  // action in the message, which is also written to standard error.
  static Status may(const char* what) { return DirectCallback::refuse(what); }

  // Returns the operation's status when it is done. Returns Aborted if `interrupted` returns true, and Timeout at the
  // deadline; the operation is then still pending. The calling thread runs the progress loop while it waits. Inside a
  // direct callback it returns InvalidArgument, even if the operation is done.
  using Deadline = std::optional<std::chrono::steady_clock::time_point>;
  CIRANDA_EXPORTED Status wait(const OperationPtr& operation, const Interrupted& interrupted = nullptr,
                               Deadline deadline = {});

  // Calls by NCCL are done before their results are there, and may lose them later. Waits until the results of all
  // calls of this rank that are done are there, or until the world has failed, or `interrupted` returns true. The error
  // then names the first result that is void.
  CIRANDA_EXPORTED Status await_results(const Interrupted& interrupted = nullptr);

  // As wait(), but without a waiting thread. Until the operation is done, it counts as waited for. Then `callback` is
  // called directly (see Operation::when_done).
  CIRANDA_EXPORTED void when_done(const OperationPtr& operation, Operation::Callback callback);

  // Calls back on a callback thread, as if the request had been submitted with `callback`.
  void call_back(const OperationPtr& operation, Operation::Callback callback);

  // Runs a few iterations of the progress loop if the operation is pending and the progress lock is free. Returns
  // is_done().
  CIRANDA_EXPORTED bool poll(const OperationPtr& operation);

  // The ranks of a process set, ascending; empty if there is no set with this id.
  CIRANDA_EXPORTED std::vector<int> ranks_of(std::uint32_t process_set) const;

  // Forms a process set. All of its ranks call this, and no others. `nth` is the same on all of them, and new to the
  // lowest of the ranks. The set has one lane.
  CIRANDA_EXPORTED Result<std::uint32_t> form_set(std::vector<int> ranks, std::uint32_t nth);

  // The process set of this rank and `peer`, which always exists. Returns 0 if `peer` is no other rank.
  CIRANDA_EXPORTED std::uint32_t pair_with(int peer) const;

  // The number of calls of this process that are to be part of graphs, into which their streams were captured.
  CIRANDA_EXPORTED static std::uint64_t n_captured_calls();

  // A blocking collective of all ranks. Allocates shared memory, in which tensors are combined in place, without a
  // copy. If memory cannot be shared (several hosts, no room), all ranks get private memory instead. The memory may
  // outlive the engine, which keeps it mapped until the engine ends.
  CIRANDA_EXPORTED Result<SharedAllocation> allocate_shared(std::size_t n_bytes,
                                                            const Interrupted& interrupted = nullptr);
  // The algorithms by which the world could execute a collective of `n_bytes`, and the one that it chooses. The type is
  // float32 where it matters. REQUIRES: not called inside a callback of the engine.
  CIRANDA_EXPORTED std::vector<Candidate> candidates(Collective collective, std::size_t n_bytes) const;

  // Describes in words how the world agrees on a repeated blocking call of one tensor to which a rank contributes
  // `n_bytes`. The settings of the lowest rank decide; the text is empty on all others. REQUIRES: as above.
  CIRANDA_EXPORTED std::string_view agreement(Collective collective, std::size_t n_bytes) const;

  // How many bytes of this rank's tensors were combined in place.
  CIRANDA_EXPORTED std::uint64_t n_bytes_in_place() const;
  // How many calls this rank has executed by direct rounds, without the log.
  std::uint64_t n_direct() const;
  // How often a name was looked up, for this rank's calls and for entries of the log.
  std::uint64_t n_lookups() const;
  // A collective of the world has failed on this rank, or a rank has left or was lost. The ranks may now be at
  // different points of their programs. The engine still executes the calls on which they agree.
  CIRANDA_EXPORTED bool has_failed() const;

  // Records the stages of this rank's calls, from now until the recording is destroyed. It may outlive the engine. It
  // does not change how a call is executed.
  CIRANDA_EXPORTED std::unique_ptr<Recording> record() const;
  // This rank's counters, since it joined the world. Valid as long as the engine.
  CIRANDA_EXPORTED const CounterPage& counter_page() const;
  // Counts a step of the training, which has ended. Any thread.
  CIRANDA_EXPORTED void count_step();
  // Writes the calls of rank 0 to a file; other ranks only note the path. Does nothing if a timeline is already being
  // written to this file. Returns InvalidArgument, on all ranks alike, if one is being written to another file; on rank
  // 0 an error if the file cannot be created. stop_timeline() completes the file. Any thread may call either.
  CIRANDA_EXPORTED Status start_timeline(const std::string& path, bool marks_cycles);
  CIRANDA_EXPORTED void stop_timeline();
  // Appends this rank's calls to a file that the launcher has made for a timeline of all ranks, until stop_records(),
  // or until the world ends. Does nothing if it is called again with this file, or if the launcher has had calls
  // recorded from the beginning. A file that cannot be written is reported on standard error. Any thread may call
  // either.
  CIRANDA_EXPORTED void start_records(const std::string& path);
  CIRANDA_EXPORTED void stop_records();

  // Says goodbye to the other ranks, fails pending operations with Aborted, and stops the background thread. Returns
  // when every live peer has answered (or after the link timeout) and all callbacks have run, except one that calls
  // this. Idempotent. Does nothing inside a direct callback: call may() before.
  void shutdown();

 private:
  // The regions of memory that all ranks share; null if they share none.
  std::shared_ptr<SharedRegions> shared_regions() const;

  friend class Repeating;  // of the tests
  // The fast path of run(). Returns nullopt if it does not apply, or if another thread uses the engine.
  std::optional<OperationPtr> repeat(const Call& call, OpHandle* handle);

  struct Parts;
  Engine(std::unique_ptr<Mesh> mesh, const Config& config, std::span<const BackendRow> backends,
         MayOthersCall may_others_call);
  std::unique_ptr<Parts> parts_;
};

}  // namespace ciranda
