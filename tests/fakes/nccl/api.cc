#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "communicator.hpp"
#include "driver.hpp"
#include "nccl.hpp"

namespace ciranda::fakes {
namespace {

using cuda::ncclComm_t;
using cuda::ncclResult_t;
using Found = std::shared_ptr<Communicator>;

// Those of the process, by handle.
struct All {
  std::mutex mutex;
  std::map<ncclComm_t, Found> live;
};

All& all() {
  static auto* const kept = new All;
  return *kept;
}

Found find(ncclComm_t handle) {
  const std::lock_guard lock(all().mutex);
  const auto found = all().live.find(handle);
  return found == all().live.end() ? nullptr : found->second;
}

Found take(ncclComm_t handle) {
  const std::lock_guard lock(all().mutex);
  const auto found = all().live.extract(handle);
  return found.empty() ? nullptr : found.mapped();
}

// On the same GPU: ranks that are threads of one process have one each.
bool others_have_work(const cuda::CUuuid& gpu) {
  const std::lock_guard lock(all().mutex);
  return std::ranges::any_of(all().live, [&gpu](const auto& each) {
    return each.second->has_work() && each.second->gpu().bytes == gpu.bytes;
  });
}

void sleep_while(const auto& holds) {
  while (holds() && !is_over()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// All at once, or it hangs.
void abort_together(const std::vector<Found>& communicators) {
  sleep_while([] { return std::getenv("FAKE_NCCL_ABORT") != nullptr; });
  for (const Found& each : communicators) each->abort();
  for (const Found& each : communicators) {
    sleep_while([&each] { return others_have_work(each->gpu()) || each->has_work() || each->is_captured(); });
  }
}

// Calls of collectives by their names.
struct Counts {
  std::mutex mutex;
  std::map<std::string, std::uint64_t> by_name;
};

Counts& counts() {
  static auto* const kept = new Counts;
  return *kept;
}

// Of the calling thread. Its collectives are all of one communicator, on one stream: others are not imitated.
struct Group {
  int depth = 0;
  std::vector<Found> aborts;
  Found communicator;
  cuda::CUstream stream = nullptr;
  std::vector<Operation> operations;
};
thread_local Group group;

ncclResult_t start(const char* name, ncclComm_t handle, const Operation& operation, cuda::CUstream stream) {
  Found found = find(handle);
  if (found == nullptr) return ncclResult_t::kInvalidArgument;
  {
    const std::lock_guard lock(counts().mutex);
    ++counts().by_name[name];
  }
  if (group.depth == 0) return found->start({operation}, stream);
  if (group.communicator != nullptr && (group.communicator != found || group.stream != stream)) {
    return ncclResult_t::kInvalidUsage;
  }
  group.communicator = std::move(found);
  group.stream = stream;
  group.operations.push_back(operation);
  return ncclResult_t::kSuccess;
}

// What a group has gathered.
ncclResult_t start_all() {
  const Found communicator = std::exchange(group.communicator, nullptr);
  if (communicator == nullptr) return ncclResult_t::kSuccess;
  return communicator->start(std::exchange(group.operations, {}), group.stream);
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  const char* const given = std::getenv("FAKE_NCCL_VERSION");
  *version = given == nullptr ? 22809 : std::atoi(given);
  return ncclResult_t::kSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclResult_t::kSuccess: return "no error";
    case ncclResult_t::kUnhandledCudaError: return "unhandled cuda error";
    case ncclResult_t::kSystemError: return "unhandled system error";
    case ncclResult_t::kInternalError: return "internal error";
    case ncclResult_t::kInvalidArgument: return "invalid argument";
    case ncclResult_t::kInvalidUsage: return "invalid usage";
    case ncclResult_t::kRemoteError: return "remote process exited or there was a network error";
    case ncclResult_t::kInProgress: return "NCCL operation in progress";
  }
  return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetUniqueId(cuda::ncclUniqueId* id) {
  static std::atomic<unsigned> last{0};
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  std::snprintf(id->internal.data(), id->internal.size(), "/fake_nccl_%d_%u_%llx", getpid(), ++last,
                static_cast<unsigned long long>(now));
  return ncclResult_t::kSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int n_ranks, cuda::ncclUniqueId id, int rank,
                                    cuda::ncclConfig_t* config) {
  static auto* const current = in_driver<decltype(fake_cuda_current_uuid)>("fake_cuda_current_uuid");
  cuda::CUuuid gpu{};
  if (current == nullptr || current(&gpu) != cuda::CUresult::kSuccess) return ncclResult_t::kUnhandledCudaError;
  if (config->magic != 0xcafebeef || config->size < sizeof *config || n_ranks < 1 || rank < 0 || rank >= n_ranks) {
    return ncclResult_t::kInvalidArgument;
  }
  if (config->blocking != 0) return ncclResult_t::kInvalidUsage;  // not imitated
  const char* const fails = std::getenv("FAKE_NCCL_INIT");
  if (fails != nullptr && std::atoi(fails) != 0) return static_cast<ncclResult_t>(std::atoi(fails));
  auto made = std::make_shared<Communicator>(id, n_ranks, rank, gpu);
  *handle = reinterpret_cast<ncclComm_t>(made.get());
  const std::lock_guard lock(all().mutex);
  all().live.emplace(*handle, std::move(made));
  return ncclResult_t::kInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  const Found found = find(handle);
  if (found == nullptr) return ncclResult_t::kInvalidArgument;
  *error = found->poll();
  return ncclResult_t::kSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  const Found found = find(handle);
  return found == nullptr ? ncclResult_t::kInvalidArgument : ncclResult_t::kSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  const Found found = take(handle);
  if (found == nullptr) return ncclResult_t::kInvalidArgument;
  sleep_while([&found] { return found->has_work() || found->is_captured(); });
  return ncclResult_t::kSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  Found found = take(handle);
  if (found == nullptr) return ncclResult_t::kInvalidArgument;
  if (group.depth > 0) {
    group.aborts.push_back(std::move(found));
  } else {
    abort_together({found});
  }
  return ncclResult_t::kSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclResult_t::kSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return ncclResult_t::kInvalidUsage;
  if (--group.depth > 0) return ncclResult_t::kSuccess;
  abort_together(std::exchange(group.aborts, {}));
  return start_all();
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, cuda::ncclDataType_t type,
                           cuda::ncclRedOp_t op, ncclComm_t handle, cuda::CUstream stream) {
  return start("ncclAllReduce", handle, {{Does::kAllreduce, count, type, op}, from, to}, stream);
}

ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, cuda::ncclDataType_t type, cuda::ncclRedOp_t op,
                        int root, ncclComm_t handle, cuda::CUstream stream) {
  return start("ncclReduce", handle, {{Does::kReduce, count, type, op, root}, from, to}, stream);
}

ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, cuda::ncclDataType_t type,
                               cuda::ncclRedOp_t op, ncclComm_t handle, cuda::CUstream stream) {
  return start("ncclReduceScatter", handle, {{Does::kReducescatter, count, type, op}, from, to}, stream);
}

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, cuda::ncclDataType_t type, ncclComm_t handle,
                           cuda::CUstream stream) {
  return start("ncclAllGather", handle, {{Does::kAllgather, count, type}, from, to}, stream);
}

ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, cuda::ncclDataType_t type, int root,
                           ncclComm_t handle, cuda::CUstream stream) {
  const Call call{Does::kBroadcast, count, type, cuda::ncclRedOp_t::kSum, root};
  return start("ncclBroadcast", handle, {call, from, to}, stream);
}

ncclResult_t ncclSend(const void* from, std::size_t count, cuda::ncclDataType_t type, int peer, ncclComm_t handle,
                      cuda::CUstream stream) {
  const Call call{Does::kSend, count, type, cuda::ncclRedOp_t::kSum, peer};
  return start("ncclSend", handle, {call, from, nullptr}, stream);
}

ncclResult_t ncclRecv(void* to, std::size_t count, cuda::ncclDataType_t type, int peer, ncclComm_t handle,
                      cuda::CUstream stream) {
  const Call call{Does::kReceive, count, type, cuda::ncclRedOp_t::kSum, peer};
  return start("ncclRecv", handle, {call, nullptr, to}, stream);
}

std::uint64_t fake_nccl_n_calls(const char* name) {
  const std::lock_guard lock(counts().mutex);
  std::uint64_t n_all = 0;
  for (const auto& [each, n] : counts().by_name) n_all += n;
  return *name == '\0' ? n_all : counts().by_name[name];
}

std::uint64_t fake_nccl_n_communicators() {
  const std::lock_guard lock(all().mutex);
  return all().live.size();
}

std::uint64_t fake_nccl_n_under_way() { return Communicator::n_under_way.load(); }

}  // namespace ciranda::fakes
