#include "backend/cuda/peer_alone.hpp"

#include <array>
#include <span>

#include "backend/cuda/copies.hpp"
#include "backend/cuda/copy_plan.hpp"
#include "backend/cuda/kernels/launches.hpp"

namespace ciranda::cuda {
namespace {

// What a plan takes, in the plan's order.
struct Launches {
  std::vector<ReduceLaunch> reductions;
  Copies copies;
};

// Input and output of a reduction have the same pieces.
Launches launches_of(const Plan& plan) {
  Launches made;
  const InputPieces& input = plan.input_for(0);
  const OutputPieces& output = plan.output_by_rank.empty() ? plan.output : plan.output_by_rank.front();
  if (!info(plan.collective).is_reduction || is_unscaled(plan)) {
    add(made.copies, input, output, 0, output.n_bytes());
    return made;
  }
  output.for_range(0, output.n_bytes(), [&](std::span<std::byte> part, std::size_t at) {
    const std::array inputs{input.at(at).data()};
    made.reductions.push_back(make_reduce(plan, inputs, part.data(), part.size() / size_of(plan.dtype)));
  });
  return made;
}

Status queue(const Launches& launches, PeerStream::Tasks& tasks) {
  for (const ReduceLaunch& reduction : launches.reductions) {
    if (Status status = tasks.reduce(reduction); !status.ok()) return status;
  }
  return launches.copies.size() < kLeastPacked ? tasks.copy_each(launches.copies) : tasks.copy(launches.copies);
}

}  // namespace

PeerAlone::PeerAlone(PeerStream& stream, const Plan& plan) : stream_(stream) {
  stream_.run_for(plan.place.queue, plan.holds,
                  [after = plan.after, launches = launches_of(plan)](PeerStream::Tasks& tasks) {
                    for (const DeviceEventPtr& event : after) {
                      if (Status status = tasks.wait_for(*event); !status.ok()) return status;
                    }
                    return queue(launches, tasks);
                  });
}

Progress PeerAlone::step() {
  if (stream_.is_under_way()) return Progress::kStuck;
  status_ = stream_.status();
  return status_.ok() ? Progress::kDone : Progress::kStuck;
}

}  // namespace ciranda::cuda
