#include "engine/device_advice.hpp"

#include <algorithm>

namespace ciranda {

// Of the ranks on rank 0's host, only one gives the advice: the last one for which there is a GPU of its own.
std::string device_advice(const Mesh& mesh, const Place& place, Device& device) {
  if (place.type != DeviceType::kCuda || place.index != 0) return "";
  const std::string& host = mesh.peer(mesh.rank()).host;
  if (mesh.peer(0).host != host) return "";
  int n_on_host = 0;
  int n_before = 0;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    if (mesh.peer(rank).host != host) continue;
    ++n_on_host;
    if (rank < mesh.rank()) ++n_before;
  }
  const int n_devices = device.n_devices();
  if (n_before == 0 || n_before != std::min(n_on_host, n_devices) - 1) return "";
  return "this rank is number " + std::to_string(n_before) + " of the " + std::to_string(n_on_host) +
         " on its host, counted from 0, and has a tensor on " + device.name(place) + " of " +
         std::to_string(n_devices) +
         ", and perhaps all of them have. This works, but they share the GPU. If each should have its own, choose it "
         "before the first tensor: torch.cuda.set_device(hvd.local_rank())?";
}

}  // namespace ciranda
