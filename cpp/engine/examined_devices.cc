#include "engine/examined_devices.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <utility>

#include "base/checksum.hpp"

namespace ciranda {
namespace {

constexpr std::size_t kBytes = 1 << 20;

// The outcome of the copies in one direction. It is shared, because a failed device may set it late.
using Outcome = std::promise<Status>;

Result<Device::Put> put(Device& device, const Place& place, const std::byte* from) {
  const Result<DeviceEventPtr> event = device.record(place);
  if (!event.ok()) return event.status();
  const auto made = std::make_shared<std::promise<Result<Device::Put>>>();
  device.put(
      place, {{nullptr, from, kBytes}}, event.value(),
      [made](Result<Device::Put> queued) { made->set_value(std::move(queued)); }, [](const Status&) {});
  Result<Device::Put> queued = made->get_future().get();
  if (queued.ok() && queued.value().allocated.front() == nullptr) {
    return Status::internal("there is no memory on " + device.name(place) + " for " + std::to_string(kBytes) +
                            " bytes: other processes use it (nvidia-smi lists them)");
  }
  return queued;
}

Status fetch(Device& device, const Place& place, std::byte* to, const Device::Put& from) {
  if (Status ordered = from.event->order(place); !ordered.ok()) return ordered;
  const Result<DeviceEventPtr> event = device.record(place);
  if (!event.ok()) return event.status();
  const auto outcome = std::make_shared<Outcome>();
  device.fetch(place, {{to, from.allocated.front().get(), kBytes}}, event.value(),
               [outcome](Status copied) { outcome->set_value(std::move(copied)); });
  return outcome->get_future().get();
}

// A kernel sums the bytes up. REQUIRES: no work on them is under way.
Status run_kernel(Device& device, const Place& place, const std::byte* on_device, const std::byte* on_host) {
  const auto outcome = std::make_shared<std::promise<Result<std::vector<std::uint64_t>>>>();
  device.checksums(place, {{on_device, kBytes}},
                   [outcome](Result<std::vector<std::uint64_t>> sums) { outcome->set_value(std::move(sums)); });
  const Result<std::vector<std::uint64_t>> sums = outcome->get_future().get();
  if (!sums.ok()) return sums.status();
  if (sums.value().front() != checksum({on_host, kBytes})) {
    return Status::internal("a kernel on " + device.name(place) + " computes another sum than the host: it is faulty");
  }
  return Status::ok_status();
}

Status examine(Device& device, const Place& place, bool runs_kernels) {
  if (const auto opened = device.record(place); !opened.ok()) return opened.status();
  const HostMemory first = device.allocate_on_host(place, kBytes);
  const HostMemory second = device.allocate_on_host(place, kBytes);
  if (first.data == nullptr || second.data == nullptr || !first.is_pinned || !second.is_pinned) {
    return Status::internal(
        "there is no pinned host memory: allow more locked memory (ulimit -l, the container's limits)");
  }
  const std::shared_ptr<std::byte>&sent = first.data, &received = second.data;
  for (std::size_t i = 0; i < kBytes; ++i) sent.get()[i] = std::byte(i % 251);
  std::fill_n(received.get(), kBytes, std::byte{0xff});
  const Result<Device::Put> there = put(device, place, sent.get());
  if (!there.ok()) return there.status();
  if (Status back = fetch(device, place, received.get(), there.value()); !back.ok()) return back;
  if (!std::equal(sent.get(), sent.get() + kBytes, received.get())) {
    return Status::internal("bytes copied to " + device.name(place) + " and back have changed: it is faulty");
  }
  return runs_kernels ? run_kernel(device, place, there.value().allocated.front().get(), sent.get())
                      : Status::ok_status();
}

}  // namespace

std::vector<ExaminedDevice> examine_devices(std::span<const BackendRow> backends) {
  std::vector<ExaminedDevice> examined;
  for (const BackendRow& row : backends) {
    const Result<Device*> device = row.device();
    if (!device.ok()) {
      examined.push_back({std::string(row.name), device.status(), Status::ok_status()});
      continue;
    }
    for (int index = 0; index < device.value()->n_devices(); ++index) {
      const Place place{row.memory, index, nullptr};
      Status kernels = device.value()->kernels(place);
      Status works = examine(*device.value(), place, row.make != nullptr && kernels.ok());
      examined.push_back({device.value()->name(place), std::move(works), std::move(kernels)});
    }
  }
  return examined;
}

}  // namespace ciranda
