#include "communicator.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "driver.hpp"
#include "sums.hpp"

namespace ciranda::fakes {
namespace {

using cuda::CUresult;
using cuda::ncclResult_t;

std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::uint64_t number(const std::string& text) { return text.empty() ? 0 : std::stoull(text); }

// Of this call: "k:e".
std::optional<ncclResult_t> error_after(std::uint64_t n_calls) {
  const std::string text = setting("FAKE_NCCL_ASYNC");
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos || number(text.substr(0, colon)) > n_calls) return std::nullopt;
  return static_cast<ncclResult_t>(number(text.substr(colon + 1)));
}

[[noreturn]] void report(const std::string& what) {
  std::fprintf(stderr, "fake NCCL: %s\n", what.c_str());
  std::abort();
}

// A range of a tensor.
struct Range {
  const std::byte* begin;
  std::size_t n_bytes;
};

bool overlap(const Range& a, const Range& b) {
  return a.n_bytes > 0 && b.n_bytes > 0 && a.begin < b.begin + b.n_bytes && b.begin < a.begin + a.n_bytes;
}

bool is_transfer(const Operation& operation) {
  return operation.call.does == Does::kSend || operation.call.does == Does::kReceive;
}

std::byte* in_kernel(const void* on_device) {
  static auto* const find = in_driver<decltype(fake_cuda_in_kernel)>("fake_cuda_in_kernel");
  return static_cast<std::byte*>(find(reinterpret_cast<cuda::CUdeviceptr>(on_device)));
}

}  // namespace

// Given to a stream once, or at each launch of the graph that has it.
struct Communicator::Kernel {
  Kernel(std::shared_ptr<Communicator> communicator, std::vector<Operation> calls)
      : of(std::move(communicator)), operations(std::move(calls)) {
    ++of->n_kernels_;
  }
  ~Kernel() { --of->n_kernels_; }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  const std::shared_ptr<Communicator> of;
  const std::vector<Operation> operations;

  static void* begin(void* self);
  static void forget(void* self) { const std::unique_ptr<Kernel> forgotten(static_cast<Kernel*>(self)); }
};

struct Communicator::Begun {
  std::shared_ptr<Communicator> of;
  std::vector<Operation> operations;
  std::uint64_t number;  // of the communicator's kernels, from 1 on
  bool is_endless;

  static void run(void* begun) {
    const std::unique_ptr<Begun> kernel(static_cast<Begun*>(begun));
    static_cast<void>(kernel->of->run(*kernel));
    ++kernel->of->n_run_;
    kernel->of->count(-1);
  }
};

void* Communicator::Kernel::begin(void* self) {
  const auto& kernel = *static_cast<const Kernel*>(self);
  return kernel.of->begin(kernel).release();
}

// What a call reads and writes.
struct Communicator::Touched {
  Range from;
  Range to;
};

// A send or a receive under way.
struct Communicator::Transfer {
  Operation operation;
  std::size_t at = 0;
};

Communicator::Communicator(const cuda::ncclUniqueId& id, int n_ranks, int rank, const cuda::CUuuid& gpu)
    : segment_(std::make_unique<Segment>(id, n_ranks)),
      rank_(rank),
      id_(id.internal.data()),
      seed_(std::hash<std::string>{}(id_)),
      n_polls_left_(number(setting("FAKE_NCCL_POLLS"))) {
  Segment::Part& own = segment_->of(rank);
  own.gpu = gpu;
  own.has_joined.store(true);
}

ncclResult_t Communicator::poll() {
  if (failed_) return *failed_;
  if (!is_made_) {
    const ncclResult_t outcome = init();
    if (outcome == ncclResult_t::kSuccess) {
      is_made_ = true;
      n_polls_left_ = number(setting("FAKE_NCCL_POLLS"));
    } else if (outcome != ncclResult_t::kInProgress) {
      failed_ = outcome;
    }
    return outcome;
  }
  if (pending_) {
    if (n_polls_left_ > 0) {
      --n_polls_left_;
      return ncclResult_t::kInProgress;
    }
    const ncclResult_t launched = std::exchange(pending_, nullptr)();
    if (launched != ncclResult_t::kSuccess) failed_ = launched;
    return launched;
  }
  if (n_calls_ > 0 && (failed_ = error_after(n_calls_))) return *failed_;
  return ncclResult_t::kSuccess;
}

ncclResult_t Communicator::init() {
  if (setting("FAKE_NCCL_INIT") == "never") {
    segment_->forget_name();
    return ncclResult_t::kInProgress;
  }
  if (n_polls_left_ > 0) {
    --n_polls_left_;
    return ncclResult_t::kInProgress;
  }
  for (int rank = 0; rank < segment_->n_ranks(); ++rank) {
    if (!segment_->of(rank).has_joined.load()) return ncclResult_t::kInProgress;
  }
  segment_->forget_name();
  for (int rank = 0; rank < segment_->n_ranks(); ++rank) {
    for (int other = 0; other < rank; ++other) {
      if (segment_->of(rank).gpu.bytes == segment_->of(other).gpu.bytes) return ncclResult_t::kInvalidUsage;
    }
  }
  return ncclResult_t::kSuccess;
}

Communicator::Touched Communicator::touched(const Operation& operation) const {
  const auto& [call, from, to] = operation;
  const std::size_t n_bytes = call.count * size_of(call.type);
  const std::size_t all = n_bytes * static_cast<std::size_t>(segment_->n_ranks());
  const bool is_root = rank_ == call.peer;
  Touched touched{{static_cast<const std::byte*>(from), n_bytes}, {static_cast<const std::byte*>(to), n_bytes}};
  if (call.does == Does::kReducescatter) touched.from.n_bytes = all;
  if (call.does == Does::kAllgather) touched.to.n_bytes = all;
  if (call.does == Does::kReceive || (call.does == Does::kBroadcast && !is_root)) touched.from.n_bytes = 0;
  if (call.does == Does::kSend || (call.does == Does::kReduce && !is_root)) touched.to.n_bytes = 0;
  return touched;
}

ncclResult_t Communicator::start(std::vector<Operation> operations, cuda::CUstream stream) {
  if (failed_) return *failed_;
  if (!is_made_ || pending_ || is_aborted_.load()) return ncclResult_t::kInvalidUsage;
  for (Operation& each : operations) {
    Call& call = each.call;
    if (size_of(call.type) == 0 || call.op > cuda::ncclRedOp_t::kMin) return ncclResult_t::kInvalidArgument;
    const bool has_peer = call.does == Does::kReduce || call.does >= Does::kBroadcast;
    if (has_peer && (call.peer < 0 || call.peer >= segment_->n_ranks())) return ncclResult_t::kInvalidArgument;
    for (const void* address : {each.from, static_cast<const void*>(each.to)}) {
      if (reinterpret_cast<std::uintptr_t>(address) % size_of(call.type) != 0) report("a tensor is not aligned");
    }
    const auto [from, to] = touched(each);
    const auto self = static_cast<std::size_t>(rank_);
    const std::byte* in_place = to.begin;
    if (call.does == Does::kReducescatter) in_place = to.begin - self * to.n_bytes;
    if (call.does == Does::kAllgather) in_place = to.begin + self * from.n_bytes;
    if (overlap(from, to) && from.begin != in_place) report("the tensors of a collective overlap");
    for (const Operation& other : operations) {
      if (&other == &each) continue;
      const auto [read, written] = touched(other);
      if (overlap(to, read) || overlap(to, written)) report("the tensors of a group overlap");
    }
  }
  ++n_calls_;
  const auto launched = [this, operations = std::move(operations), stream] { return launch(operations, stream); };
  if (n_calls_ > 1 || n_polls_left_ == 0) return launched();
  pending_ = launched;
  return ncclResult_t::kInProgress;
}

ncclResult_t Communicator::launch(const std::vector<Operation>& operations, cuda::CUstream stream) {
  static auto* const give = in_driver<decltype(fake_cuda_launch)>("fake_cuda_launch");
  std::vector<CallerTouch> touches;
  for (const Operation& each : operations) {
    const auto [from, to] = touched(each);
    for (const auto& [range, writes] : {std::pair(from, false), std::pair(to, true)}) {
      if (range.n_bytes == 0) continue;
      touches.push_back({reinterpret_cast<cuda::CUdeviceptr>(range.begin), range.n_bytes, writes});
    }
  }
  auto kernel = std::make_unique<Kernel>(shared_from_this(), operations);
  const LibraryKernel given{"NCCL", kernel.release(), Kernel::begin, Begun::run, Kernel::forget};
  return give(stream, &given, touches.data(), touches.size()) == CUresult::kSuccess ? ncclResult_t::kSuccess
                                                                                    : ncclResult_t::kUnhandledCudaError;
}

std::unique_ptr<Communicator::Begun> Communicator::begin(const Kernel& kernel) {
  const std::lock_guard lock(mutex_);
  auto begun = std::make_unique<Begun>(Begun{shared_from_this(), kernel.operations, ++n_begun_, false});
  for (Operation& each : begun->operations) {
    if (!is_transfer(each)) each.call.number = ++n_alike_;
  }
  begun->is_endless = number(setting("FAKE_NCCL_ENDLESS")) == n_begun_;
  static auto* const order = new LaunchOrder;
  if (setting("FAKE_NCCL_ANY_ORDER").empty() && !order->add(gpu(), meetings(begun->operations))) {
    report("GPUs have been given kernels of two communicators in different orders, and may wait for each other");
  }
  count(1);
  return begun;
}

std::vector<LaunchOrder::Meeting> Communicator::meetings(const std::vector<Operation>& operations) {
  std::vector<LaunchOrder::Meeting> all;
  for (const auto& [call, from, to] : operations) {
    std::string name = id_ + " ";
    if (is_transfer({call, from, to})) {
      const bool sends = call.does == Does::kSend;
      const std::pair ends(sends ? rank_ : call.peer, sends ? call.peer : rank_);
      name += std::to_string(ends.first) + " to " + std::to_string(ends.second) + " ";
      all.push_back({name + std::to_string(++n_transfers_[ends]), 2});
    } else {
      all.push_back({name + std::to_string(call.number), segment_->n_ranks()});
    }
  }
  return all;
}

void Communicator::count(int change) {
  n_under_way_ += static_cast<std::uint64_t>(change);
  n_under_way += static_cast<std::uint64_t>(change);
}

bool Communicator::is_over() const { return is_aborted_.load() || fakes::is_over(); }

bool Communicator::wait_until(const std::function<bool(const Segment::Part&)>& holds) const {
  for (int rank = 0; rank < segment_->n_ranks(); ++rank) {
    while (!holds(segment_->of(rank))) {
      if (is_over()) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  return true;
}

// The collectives of a group one after the other, and then its sends and receives at the same time. Kernels of several
// streams run in the order in which they were given.
bool Communicator::run(const Begun& kernel) {
  while (n_run_.load() + 1 < kernel.number) {
    if (is_over()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  std::vector<Transfer> transfers;
  for (const Operation& each : kernel.operations) {
    if (is_transfer(each)) transfers.push_back({each});
    if (!is_transfer(each) && !run(each)) return false;
  }
  while (kernel.is_endless && !is_over()) std::this_thread::sleep_for(std::chrono::microseconds(20));
  return transfer(std::move(transfers));
}

// A piece goes through the slots at a time. Nobody writes a slot before all have read what was in it.
bool Communicator::run(const Operation& operation) {
  const auto [call, from, to] = operation;
  std::size_t n_bytes = call.count * size_of(call.type);
  if (call.does == Does::kReducescatter) n_bytes *= static_cast<std::size_t>(segment_->n_ranks());
  const bool gives = call.does != Does::kBroadcast || rank_ == call.peer;
  Segment::Part& own = segment_->of(rank_);
  std::size_t at = 0;
  do {
    const std::size_t n = std::min(n_bytes - at, Segment::kSlotBytes);
    const std::uint64_t piece = ++n_pieces_;
    if (!wait_until([&](const Segment::Part& part) { return part.n_taken.load() + 1 >= piece; })) return false;
    if (n > 0 && gives) std::memcpy(own.slot, in_kernel(from) + at, n);
    own.call = call;
    own.n_given.store(piece);
    if (!wait_until([&](const Segment::Part& part) { return part.n_given.load() >= piece; })) return false;
    for (int rank = 0; rank < segment_->n_ranks(); ++rank) {
      if (segment_->of(rank).call != call) report("ranks have given kernels that do not belong together");
    }
    if (n > 0) take(operation, at, n);
    own.n_taken.store(piece);
    at += n;
  } while (at < n_bytes);
  return true;
}

// From the slots, which have this piece of all inputs.
void Communicator::take(const Operation& operation, std::size_t at, std::size_t n_bytes) {
  const Call& call = operation.call;
  const std::size_t part_bytes = call.count * size_of(call.type);
  if (call.does == Does::kBroadcast) {
    std::memcpy(in_kernel(operation.to) + at, segment_->of(call.peer).slot, n_bytes);
    return;
  }
  if (call.does == Does::kAllgather) {
    for (int rank = 0; rank < segment_->n_ranks(); ++rank) {
      const std::size_t begin = static_cast<std::size_t>(rank) * part_bytes;
      std::memcpy(in_kernel(operation.to) + begin + at, segment_->of(rank).slot, n_bytes);
    }
    return;
  }
  if (call.does == Does::kReduce && rank_ != call.peer) return;
  // Of a reducescatter what lies in this rank's part.
  const bool is_cut = call.does == Does::kReducescatter;
  const std::size_t own = is_cut ? static_cast<std::size_t>(rank_) * part_bytes : 0;
  const std::size_t begin = std::max(at, own);
  const std::size_t end = std::min(at + n_bytes, own + part_bytes);
  if (begin >= end) return;
  std::vector<int> order(static_cast<std::size_t>(segment_->n_ranks()));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::ranges::shuffle(order, std::minstd_rand(static_cast<unsigned>(seed_ + call.number)));
  std::vector<const std::byte*> inputs;
  for (const int rank : order) inputs.push_back(segment_->of(rank).slot + (begin - at));
  combine(call.type, call.op, inputs, in_kernel(operation.to) + (begin - own), end - begin);
}

// Each goes on as far as it can, those with one peer in their order.
bool Communicator::transfer(std::vector<Transfer> transfers) {
  while (!transfers.empty()) {
    if (is_over()) return false;
    std::vector<Transfer> left;
    for (Transfer& each : transfers) {
      const Call& call = each.operation.call;
      const bool sends = call.does == Does::kSend;
      const bool must_wait = std::ranges::any_of(left, [&](const Transfer& before) {
        return before.operation.call.does == call.does && before.operation.call.peer == call.peer;
      });
      Segment::Mailbox& mail = sends ? segment_->of(call.peer).from[rank_] : segment_->of(rank_).from[call.peer];
      const std::size_t n_bytes = call.count * size_of(call.type);
      const std::size_t n = std::min(n_bytes - each.at, Segment::kMailBytes);
      const bool is_full = mail.n_written.load() > mail.n_read.load();
      if (must_wait || is_full == sends) {
        left.push_back(each);
        continue;
      }
      if (sends) {
        mail.n_bytes = n_bytes;
        std::memcpy(mail.piece, in_kernel(each.operation.from) + each.at, n);
        ++mail.n_written;
      } else {
        if (mail.n_bytes != n_bytes) report("a rank receives another number of bytes than is sent");
        std::memcpy(in_kernel(each.operation.to) + each.at, mail.piece, n);
        ++mail.n_read;
      }
      each.at += n;
      if (each.at < n_bytes) left.push_back(each);
    }
    if (left.size() == transfers.size()) std::this_thread::sleep_for(std::chrono::microseconds(20));
    transfers = std::move(left);
  }
  return true;
}

}  // namespace ciranda::fakes
