// Reductions with op Adasum (collective/adasum.hpp): phase after phase, until all tensors are done. Members that do not
// contribute execute the phases too.
#include "collective/adasum.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "execute/collectives/functions.hpp"

namespace ciranda {
namespace {

using Sums = std::vector<std::unique_ptr<Adasum>>;

// The next phase of all sums together.
Work next_phase(const std::shared_ptr<Sums>& sums) {
  Work work;
  for (const auto& sum : *sums) {
    if (std::optional<Plan> plan = sum->next()) work.plans.push_back(std::move(*plan));
  }
  if (!work.plans.empty()) work.continue_with = [sums] { return Result<Work>(next_phase(sums)); };
  return work;
}

}  // namespace

Result<Work> adasum_work(const Participant::Execute& entry, InFlight& in_flight, const Mesh& mesh) {
  const std::vector<const Request*> requests = requests_of(entry, in_flight);
  const std::vector<int> summed = contributors(entry, mesh.size());
  const bool takes_part = std::find(summed.begin(), summed.end(), mesh.rank()) != summed.end();
  std::map<DataType, std::vector<AdasumTensor>> tensors;
  for (const Request* request : requests) {
    for (std::size_t i = 0; i < request->signature.tensors.size(); ++i) {
      const TensorSignature& tensor = request->signature.tensors[i];
      const TensorMemory memory = takes_part ? request->memory[i] : TensorMemory{};
      tensors[tensor.dtype].push_back({memory.input, memory.output, count_of(tensor.shape)});
    }
  }
  auto sums = std::make_shared<Sums>();
  for (const auto& [dtype, of_dtype] : tensors) {
    sums->push_back(make_adasum({.dtype = dtype,
                                 .prescale = requests.front()->signature.prescale,
                                 .postscale = requests.front()->signature.postscale,
                                 .contributors = summed,
                                 .n_ranks = mesh.size(),
                                 .rank = mesh.rank()},
                                of_dtype));
  }
  return next_phase(sums);
}

}  // namespace ciranda
