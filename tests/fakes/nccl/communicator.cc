#include "communicator.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
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

bool overlap(const void* from, const void* to, std::size_t n_bytes) {
  const auto* const a = static_cast<const std::byte*>(from);
  const auto* const b = static_cast<const std::byte*>(to);
  return a != b && a < b + n_bytes && b < a + n_bytes;
}

std::byte* in_kernel(const void* on_device) {
  static auto* const find = in_driver<decltype(fake_cuda_in_kernel)>("fake_cuda_in_kernel");
  return static_cast<std::byte*>(find(reinterpret_cast<cuda::CUdeviceptr>(on_device)));
}

}  // namespace

struct Communicator::Kernel {
  std::shared_ptr<Communicator> of;
  const void* from;
  void* to;
  Call call;

  static void run(void* argument) {
    const std::unique_ptr<Kernel> kernel(static_cast<Kernel*>(argument));
    kernel->of->run(*kernel);
    kernel->of->count(-1);
  }
};

Communicator::Communicator(const cuda::ncclUniqueId& id, int n_ranks, int rank, const cuda::CUuuid& gpu)
    : segment_(std::make_unique<Segment>(id, n_ranks)),
      rank_(rank),
      seed_(std::hash<std::string_view>{}(id.internal.data())),
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

ncclResult_t Communicator::allreduce(const void* from, void* to, Call call, cuda::CUstream stream) {
  const std::size_t n_bytes = call.count * size_of(call.type);
  if (failed_) return *failed_;
  if (!is_made_ || pending_ || is_aborted_.load()) return ncclResult_t::kInvalidUsage;
  if (size_of(call.type) == 0 || call.op > cuda::ncclRedOp_t::kMin) return ncclResult_t::kInvalidArgument;
  for (const void* address : {from, static_cast<const void*>(to)}) {
    if (reinterpret_cast<std::uintptr_t>(address) % size_of(call.type) != 0) report("a tensor is not aligned");
  }
  if (overlap(from, to, n_bytes)) report("the tensors of an allreduce overlap");
  call.number = ++n_calls_;
  const auto launched = [this, from, to, call, stream] { return launch(from, to, call, stream); };
  if (n_calls_ > 1 || n_polls_left_ == 0) return launched();
  pending_ = launched;
  return ncclResult_t::kInProgress;
}

ncclResult_t Communicator::launch(const void* from, void* to, const Call& call, cuda::CUstream stream) {
  static auto* const give = in_driver<decltype(fake_cuda_launch)>("fake_cuda_launch");
  const std::size_t n_bytes = call.count * size_of(call.type);
  const CallerTouch touches[] = {{reinterpret_cast<cuda::CUdeviceptr>(from), n_bytes, false},
                                 {reinterpret_cast<cuda::CUdeviceptr>(to), n_bytes, true}};
  count(1);
  auto kernel = std::make_unique<Kernel>(Kernel{shared_from_this(), from, to, call});
  if (give(stream, "ncclAllReduce", touches, 2, Kernel::run, kernel.get()) != CUresult::kSuccess) {
    count(-1);
    return ncclResult_t::kUnhandledCudaError;
  }
  static_cast<void>(kernel.release());
  return ncclResult_t::kSuccess;
}

void Communicator::count(int change) {
  n_under_way_ += static_cast<std::uint64_t>(change);
  n_under_way += static_cast<std::uint64_t>(change);
}

bool Communicator::wait_until(const std::function<bool(const Segment::Part&)>& holds) const {
  for (int rank = 0; rank < segment_->n_ranks(); ++rank) {
    while (!holds(segment_->of(rank))) {
      if (is_aborted_.load() || is_over()) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  return true;
}

// A piece goes through the slots at a time. Nobody writes a slot before all have read what was in it.
void Communicator::run(const Kernel& kernel) {
  const std::size_t n_bytes = kernel.call.count * size_of(kernel.call.type);
  std::vector<int> order(static_cast<std::size_t>(segment_->n_ranks()));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::ranges::shuffle(order, std::minstd_rand(static_cast<unsigned>(seed_ + kernel.call.number)));
  Segment::Part& own = segment_->of(rank_);
  std::size_t at = 0;
  do {
    const std::size_t n = std::min(n_bytes - at, Segment::kSlotBytes);
    const std::uint64_t piece = ++n_pieces_;
    if (!wait_until([&](const Segment::Part& part) { return part.n_taken.load() + 1 >= piece; })) return;
    if (n > 0) std::memcpy(own.slot, in_kernel(kernel.from) + at, n);
    own.call = kernel.call;
    own.n_given.store(piece);
    if (!wait_until([&](const Segment::Part& part) { return part.n_given.load() >= piece; })) return;
    std::vector<const std::byte*> inputs;
    for (const int rank : order) {
      if (segment_->of(rank).call != kernel.call) report("ranks have given kernels that do not belong together");
      inputs.push_back(segment_->of(rank).slot);
    }
    if (n > 0) combine(kernel.call.type, kernel.call.op, inputs, in_kernel(kernel.to) + at, n);
    own.n_taken.store(piece);
    at += n;
  } while (at < n_bytes);
}

}  // namespace ciranda::fakes
