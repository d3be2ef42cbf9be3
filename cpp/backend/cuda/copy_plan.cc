#include "backend/cuda/copy_plan.hpp"

#include <algorithm>
#include <utility>

namespace ciranda::cuda {
namespace {

class Planner {
 public:
  Planner(Direction direction, std::size_t buffer_bytes) : direction_(direction), buffer_bytes_(buffer_bytes) {}

  void add(const DeviceCopy& copy) {
    std::size_t n_done = 0;
    while (n_done < copy.n_bytes) {
      const std::byte* const begin = on_host(copy, direction_) + n_done;
      if (window_.empty() || begin != end_ || n_in_window() >= buffer_bytes_) open_window(begin, n_done > 0);
      const std::size_t n_bytes = std::min(copy.n_bytes - n_done, buffer_bytes_ - n_in_window());
      window_.push_back({copy.to + n_done, copy.from + n_done, n_bytes});
      n_done += n_bytes;
      end_ = begin + n_bytes + (n_done == copy.n_bytes ? copy.n_bytes_behind : 0);
    }
  }

  CopyPlan take_plan() {
    close_window();
    return std::move(plan_);
  }

 private:
  std::size_t n_in_window() const { return static_cast<std::size_t>(end_ - begin_); }

  void open_window(const std::byte* begin, bool begins_amid_copy) {
    close_window();
    begin_ = end_ = begin;
    begins_amid_copy_ = begins_amid_copy;
  }

  void close_window() {
    if (window_.size() >= kLeastPacked) {
      plan_.steps.push_back({plan_.parts.size(), window_.size()});
      plan_.parts.insert(plan_.parts.end(), window_.begin(), window_.end());
      plan_.n_packed += window_.size();
    } else {
      for (const DeviceCopy& part : window_) {
        const bool continues = begins_amid_copy_ && &part == window_.data() && !plan_.steps.back().is_packed();
        if (continues) {
          plan_.parts.back().n_bytes += part.n_bytes;
        } else {
          plan_.steps.push_back({plan_.parts.size(), 1});
          plan_.parts.push_back(part);
        }
      }
    }
    window_.clear();
  }

  const Direction direction_;
  const std::size_t buffer_bytes_;
  CopyPlan plan_;
  std::vector<DeviceCopy> window_;
  const std::byte* begin_ = nullptr;  // of the window, on the host
  const std::byte* end_ = nullptr;    // of the window: behind its last part and that part's n_bytes_behind
  bool begins_amid_copy_ = false;
};

}  // namespace

CopyPlan plan_copies(std::span<const DeviceCopy> copies, Direction direction, std::size_t buffer_bytes) {
  if (buffer_bytes > 0) {
    std::vector<DeviceCopy> ordered(copies.begin(), copies.end());
    std::ranges::sort(ordered, {}, [direction](const DeviceCopy& copy) { return on_host(copy, direction); });
    Planner planner(direction, buffer_bytes);
    for (const DeviceCopy& copy : ordered) planner.add(copy);
    return planner.take_plan();
  }
  CopyPlan plan;
  for (const DeviceCopy& copy : copies) {
    if (copy.n_bytes == 0) continue;
    plan.steps.push_back({plan.parts.size(), 1});
    plan.parts.push_back(copy);
  }
  return plan;
}

}  // namespace ciranda::cuda
