#include "backend/cuda/nccl_stream.hpp"

#include <map>
#include <mutex>
#include <utility>

#include "backend/cuda/spare_stream.hpp"

namespace ciranda::cuda {
namespace {

struct KnownStreams {
  std::mutex mutex;
  std::map<NcclStream::Key, std::weak_ptr<NcclStream>> all;
};

KnownStreams& known_streams() {
  static KnownStreams& known = *new KnownStreams;
  return known;
}

}  // namespace

std::shared_ptr<NcclStream> NcclStream::find(const Key& key) {
  const std::lock_guard lock(known_streams().mutex);
  const auto found = known_streams().all.find(key);
  std::shared_ptr<NcclStream> stream = found == known_streams().all.end() ? nullptr : found->second.lock();
  return stream != nullptr && !stream->is_left_alone_.load() ? stream : nullptr;
}

Result<std::shared_ptr<NcclStream>> NcclStream::of(const Key& key, Gpu& gpu) {
  if (auto found = find(key); found != nullptr) return found;
  const Result<CUstream> handle = take_stream(gpu);
  if (!handle.ok()) return handle.status();
  const auto made = std::make_shared<NcclStream>(gpu, handle.value());
  const std::lock_guard lock(known_streams().mutex);
  std::erase_if(known_streams().all, [](const auto& each) { return each.second.expired(); });
  known_streams().all[key] = made;
  return made;
}

NcclStream::~NcclStream() {
  if (!is_left_alone_.load()) give_back_stream(gpu_, handle_);
}

void NcclStream::when_passed(std::shared_ptr<const Event> event, std::function<void(Status)> passed) {
  n_awaited_.fetch_add(1);
  awaited_.push_back({std::move(event), std::move(passed)});
  if (awaited_.size() == 1) await_first();
}

// This lives until all have passed. After a failure of the GPU it is unknown when the work ends, so what it uses is
// never freed.
void NcclStream::await_first() {
  gpu_.thread().when_passed(awaited_.front().event, [self = shared_from_this()](const Status& outcome) {
    Awaited first = std::move(self->awaited_.front());
    self->awaited_.pop_front();
    if (!self->awaited_.empty()) self->await_first();
    self->n_awaited_.fetch_sub(1);
    first.passed(outcome);
    if (!outcome.ok()) static_cast<void>(new Awaited(std::move(first)));
  });
}

}  // namespace ciranda::cuda
