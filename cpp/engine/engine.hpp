// Engine: takes requests, agrees on them with the other ranks, carries them out, completes their operations.
//
// Threads: submit(), wait(), poll() from any thread at any time; create(), shutdown() by one thread. At any moment at
// most one thread runs the *progress loop* (holds the progress lock): a caller that waits, or the background thread
// when nobody waits and there is work. Callbacks run on threads of their own (call/callback_threads.hpp) and may do
// what any thread may, shutdown() too; but for direct ones (call/callbacks.hpp), in which nothing may wait.
// Failure: nothing throws. When a rank is lost every pending and later operation fails with RanksLost, naming it.
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
#include "backend/backend.hpp"
#include "backend/registry.hpp"
#include "base/config.hpp"
#include "base/status.hpp"
#include "call/call.hpp"
#include "call/callbacks.hpp"
#include "call/operation.hpp"
#include "call/request.hpp"
#include "observe/recording.hpp"
#include "progress/long_waits.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

class SharedRegions;

struct SharedAllocation {
  OutputBuffer buffer;     // of bytes, zeroed; page-aligned where it is shared
  bool is_shared = false;  // the same on all ranks
};

class Engine {
 public:
  using OperationPtr = std::shared_ptr<Operation>;
  // Asked when a signal interrupts a wait: true gives the wait up (the operation goes on).
  using Interrupted = std::function<bool()>;

  // The engine owns the mesh and starts its background thread.
  // `backends`: for host memory and for devices; they outlive it. `may_others_call` is asked by a thread that has
  // waited for a second, without the progress lock. Only where it says no is the rank known to stand
  // (agree/standstill.hpp); without it that is known of none.
  static std::unique_ptr<Engine> create(std::unique_ptr<Mesh> mesh, const Config& config,
                                        std::span<const BackendRow> backends = all_backends(),
                                        MayOthersCall may_others_call = nullptr);
  ~Engine();  // shutdown(), if that was not called

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int rank() const;
  int size() const;
  const PeerInfo& peer(int rank) const;
  // True when every rank shares memory with this one.
  bool shares_memory_with_all() const;

  // Never blocks. A request without a name gets one: that of ranks that make the same calls in the same order. An
  // invalid request gives an operation that has failed already. The request's memory must stay valid until the
  // operation is done. `handle`, here and below: the caller's, which one thread at a time uses. A call of the name and
  // the lane that it was last used for, in this engine, looks no name up.
  OperationPtr submit(Request request, Operation::Callback callback = nullptr, OpHandle* handle = nullptr);

  // The same of a call. One that is made again as it was, but for its memory, needs no new request.
  OperationPtr submit(const Call& call, Operation::Callback callback = nullptr, OpHandle* handle = nullptr);

  // InvalidArgument inside a direct callback, where wait() and shutdown() are refused. `what` is asked for, for the
  // message, which is also told on standard error.
  static Status may(const char* what) { return DirectCallback::refuse(what); }

  // Before submit() and wait(), where these follow each other: a call that all ranks have agreed on before needs no
  // operation if they come to it at the same time. Null: it is done, and was successful. An operation: wait() for it;
  // it may be done, if it has an output. None: it is no such call, or others use the engine; submit() it, with the same
  // handle.
  std::optional<OperationPtr> repeat(const Call& call, OpHandle* handle = nullptr);

  // Returns when the operation is done, or `interrupted` said to give up (then Aborted is returned), or at the deadline
  // (Timeout); in both the operation is still pending. The caller's thread does the work while it waits. Inside a
  // direct callback: InvalidArgument, also of what is done.
  using Deadline = std::optional<std::chrono::steady_clock::time_point>;
  Status wait(const OperationPtr& operation, const Interrupted& interrupted = nullptr, Deadline deadline = {});

  // As wait(), without a thread: until it is done the operation counts as waited for, then it calls back directly (see
  // Operation::when_done).
  void when_done(const OperationPtr& operation, Operation::Callback callback);

  // Calls back as of a request that is submitted with `callback`: on a thread that is there for callbacks.
  void call_back(const OperationPtr& operation, Operation::Callback callback);

  // One look, and one iteration of the progress loop if it is free. Returns is_done().
  bool poll(const OperationPtr& operation);

  // Of a process set, ascending; empty when there is none of this id.
  std::vector<int> ranks_of(std::uint32_t process_set) const;

  // Makes a process set on its own ranks only, which all call this: the others need not know. `nth` is the same on all,
  // and new to the first of the ranks (the lowest). It gets no lanes but one.
  Result<std::uint32_t> form_set(std::vector<int> ranks, std::uint32_t nth);

  // The process set of this rank and another, which need not be added; 0 if there is no such other rank.
  std::uint32_t pair_with(int peer) const;

  // A collective of all ranks, which blocks: memory for tensors that are combined where they lie, without a copy. Where
  // that cannot be (several hosts, no room) it is this process's own, on all ranks alike. It outlives the engine, which
  // itself keeps it until it ends.
  Result<SharedAllocation> allocate_shared(std::size_t n_bytes, const Interrupted& interrupted = nullptr);
  // How the world could carry out a collective of so many bytes (of float32, where that matters), and what it chooses.
  // REQUIRES: not called back by the engine.
  std::vector<Candidate> candidates(Collective collective, std::size_t n_bytes) const;

  // How the world agrees on a blocking call that is made again, of one tensor of which a rank contributes so many
  // bytes, in words; empty on ranks other than the lowest, whose settings count. REQUIRES: as above.
  std::string_view agreement(Collective collective, std::size_t n_bytes) const;

  // How many bytes of this rank's tensors were combined where they lay.
  std::uint64_t n_bytes_in_place() const;
  // How many calls this rank has carried out by direct rounds, without the log.
  std::uint64_t n_met() const;
  // How often a name was looked up, for calls of this rank and for the log.
  std::uint64_t n_lookups() const;
  // A collective of the world has failed here, or a rank has left or was lost: ranks may have come to different places
  // of their programs. The engine goes on with what they still agree on.
  bool has_failed() const;

  // What this rank's calls do, from here on, for as long as the recording lives; it may outlive the engine. No call
  // goes another way because of it.
  std::unique_ptr<Recording> record() const;
  // Writes the calls of rank 0 to a file; on the others it only notes that. Does nothing while there is a timeline in
  // this file. InvalidArgument: there is one in another, on all ranks alike; or the file cannot be made. Any thread's,
  // as is stop_timeline(), which completes the file.
  Status start_timeline(const std::string& path, bool marks_cycles);
  void stop_timeline();

  // Tells the others, fails what is pending with Aborted, stops the background thread. Returns once every living peer
  // knows (or after two seconds), and all callbacks have run, but for one that calls this. Idempotent. Does nothing
  // inside a direct callback: ask may() before.
  void shutdown();

 private:
  // Of the memory that all ranks share; null where they share none.
  std::shared_ptr<SharedRegions> shared_regions() const;

  struct Parts;
  Engine(std::unique_ptr<Mesh> mesh, const Config& config, std::span<const BackendRow> backends,
         MayOthersCall may_others_call);
  std::unique_ptr<Parts> parts_;
};

}  // namespace ciranda
