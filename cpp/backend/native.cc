#include "backend/native.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <functional>
#include <utility>

#include "collective/hosts.hpp"
#include "collective/launch.hpp"

namespace ciranda {
namespace {

// A candidate is not tried if the cost model expects it to take more than this percentage of the best one's time.
constexpr std::uint64_t kPercentWorthTrying = 200;

// Executes a plan in a world of one.
void carry_out_alone(const Plan& plan) {
  if (!info(plan.collective).is_reduction) {
    return copy_pieces(plan.input_for(0), plan.output_by_rank.empty() ? plan.output : plan.output_by_rank.front());
  }
  plan.output.for_range(0, plan.output.n_bytes(), [&](std::span<std::byte> part, std::size_t at) {
    const std::array inputs{plan.input_for(0).at(at).data()};  // input and output have the same pieces
    kernels::reduce(plan, inputs, part);
  });
}

// A collective that reports the time from its creation until it was done.
class Timed final : public RunningCollective {
 public:
  using Clock = std::chrono::steady_clock;

  // The time begins now; `start` creates the collective to be timed.
  template <typename Start>
  Timed(Start start, std::function<void(std::chrono::nanoseconds)> took)
      : begin_(Clock::now()), running_(start()), took_(std::move(took)) {}

  Progress step() override {
    const Progress progress = running_->step();
    if (progress == Progress::kDone) took_(Clock::now() - begin_);
    return progress;
  }
  std::vector<int> awaited() const override { return running_->awaited(); }

 private:
  Clock::time_point begin_;
  std::unique_ptr<RunningCollective> running_;
  std::function<void(std::chrono::nanoseconds)> took_;
};

}  // namespace

NativeBackend::Kind::Kind(std::size_t n_bytes, const Policy& policy)
    : number(static_cast<std::uint32_t>(std::bit_width(n_bytes - 1)) * kPerSize + (policy.rounding.is_on() ? 2 : 0) +
             (policy.combines_in_parts ? 1 : 0)),
      middle_bytes(middle_of_class(n_bytes)),
      most_bytes(std::bit_ceil(n_bytes)) {}

NativeBackend::NativeBackend(Mesh& mesh, NativeOptions options)
    : mesh_(mesh),
      options_(std::move(options)),
      costs_(costs_of(mesh), placement_of(mesh)),
      ranks_per_host_(ranks_per_host(mesh)),
      hosts_(host_numbers(mesh)),
      host_parts_(runs_of(hosts_)) {
  if (mesh.arena() != nullptr) use(*mesh.arena());
}

void NativeBackend::use(SharedArena& arena) {
  session_.emplace(arena);
  tried_.clear();
  autotuner_ = {};
}

Rounding NativeBackend::rounding_of(const Plan& plan) const {
  const bool is_allreduce = plan.collective == Collective::kAllreduce || plan.collective == Collective::kReduce;
  if (!options_.rounds_to_bfloat16 || !is_allreduce || plan.dtype != DataType::kFloat32) return {};
  if (shares_memory_with_all(mesh_)) return {};
  return {ranks_per_host_ > 0 && combines_in_parts(plan) ? ranks_per_host_ : 1};
}

Policy NativeBackend::policy(bool combines_in_parts, const Rounding& rounding) const {
  const Memory available = !session_                      ? Memory::kChannels
                           : session_->share_bytes() == 0 ? Memory::kArena
                                                          : Memory::kSharedSlots;
  const std::size_t slot_bytes = session_ ? session_->slot_bytes() : 0;
  const bool hosts_combine = host_parts_.hosts.size() > 1 && host_parts_.are_fewer();
  return {{options_, mesh_.size(), slot_bytes, combines_in_parts, hosts_combine, rounding}, costs_, available};
}

void NativeBackend::combine(const Plan& plan, std::span<const std::byte*> inputs) const {
  if (plan.n_bytes > 0) reduce_pieces(plan, inputs, plan.output, {0, plan.n_bytes}, rounding_of(plan));
}

// Only allreduces in which all ranks take part: there all ranks finish at about the same time.
bool NativeBackend::learns_from(const Plan& plan) const {
  return options_.tries_candidates && !options_.prescribes() && plan.collective == Collective::kAllreduce &&
         plan.contributors.empty() && plan.receivers.empty();
}

// The candidates to try for this kind, without those that the model expects to be much slower.
const NativeBackend::Tried& NativeBackend::tried(const Policy& policy, const Kind& kind) {
  const auto [found, is_new] = tried_.try_emplace(kind.number);
  Tried& tried = found->second;
  if (!is_new) return tried;
  const Pick by_model = policy.best(Collective::kAllreduce, kind.most_bytes);
  for (const Pick& pick : policy.all(Collective::kAllreduce, kind.most_bytes)) {
    if (!costs_.is_no_slower(pick, by_model, kind.middle_bytes, kPercentWorthTrying)) continue;
    if (pick == by_model) tried.by_model = tried.picks.size();
    tried.picks.push_back(pick);
  }
  return tried;
}

Started NativeBackend::start(const Plan& plan) {
  if (plan.n_bytes == 0) return {};
  if (mesh_.size() == 1) {
    carry_out_alone(plan);
    return {};
  }
  const Rounding rounding = rounding_of(plan);
  const Policy policy = this->policy(combines_in_parts(plan), rounding);
  const auto launch = [&](const Pick& pick) {
    return Started{pick.row->start({mesh_, session_ ? &*session_ : nullptr, plan, host_parts_, hosts_,
                                    pick.segment_bytes, options_.channel_segment_bytes, scratch_, rounding}),
                   pick.row->name};
  };
  if (!learns_from(plan)) return launch(policy.best(plan.collective, plan.n_bytes));
  const Kind kind(plan.n_bytes, policy);
  const Tried& tried = this->tried(policy, kind);
  const OnlineAutotuner::Choice choice = autotuner_.next({kind.number, tried.picks.size(), tried.by_model});
  if (!choice.candidate) return launch(policy.best(plan.collective, plan.n_bytes));
  const Pick& pick = tried.picks[*choice.candidate];
  if (!choice.sample) return launch(pick);
  // Scales the time to the middle size of the kind, because calls of a kind differ in size.
  const double scale = costs_.microseconds(pick, kind.middle_bytes) / costs_.microseconds(pick, plan.n_bytes);
  const std::uint64_t least_ns = costs_.unseen_ns(*pick.row);
  const auto took = [this, sample = *choice.sample, scale, least_ns](std::chrono::nanoseconds time) {
    const double ns = static_cast<double>(time.count()) * scale;
    autotuner_.took(sample, std::max(least_ns, static_cast<std::uint64_t>(ns)));
  };
  return {std::make_unique<Timed>([&] { return launch(pick).collective; }, took), pick.row->name};
}

std::vector<NativeBackend::Tuned> NativeBackend::conclude(std::span<const std::uint64_t> news_of_all) {
  std::vector<Tuned> tuned;
  for (const std::uint32_t number : autotuner_.conclude(news_of_all)) {
    const Tried& tried = tried_.at(number);
    const auto preferred = autotuner_.preferred(number);
    const std::size_t nth = preferred.value_or(tried.by_model);
    Candidate chosen{tried.picks[nth].row->name, tried.picks[nth].segment_bytes, std::nullopt, std::nullopt, true};
    if (const auto ns = autotuner_.took_ns(number, nth)) chosen.taken_us = static_cast<double>(*ns) * 1e-3;
    tuned.push_back({Kind::most_bytes_of(number), chosen, !preferred});
  }
  return tuned;
}

std::vector<Candidate> NativeBackend::candidates(Collective collective, std::size_t n_bytes) const {
  const Policy policy = this->policy(true, {});
  const Kind kind(n_bytes, policy);
  const auto known = collective == Collective::kAllreduce ? tried_.find(kind.number) : tried_.end();
  Pick best = policy.best(collective, n_bytes);
  if (known != tried_.end()) {
    if (const auto preferred = autotuner_.preferred(kind.number)) best = known->second.picks[*preferred];
  }
  std::vector<Candidate> found;
  std::optional<Candidate> in_place;  // not a choice, but a consequence of one
  for (const Pick& pick : policy.all(collective, n_bytes)) {
    Candidate candidate{pick.row->name, pick.segment_bytes, std::nullopt, std::nullopt, pick == best};
    if (pick.row->cost != nullptr) candidate.expected_us = costs_.microseconds(pick, n_bytes);
    if (known != tried_.end()) {
      const auto& picks = known->second.picks;
      const auto found_pick = std::find(picks.begin(), picks.end(), pick);
      if (found_pick != picks.end()) {
        const auto ns = autotuner_.took_ns(kind.number, static_cast<std::size_t>(found_pick - picks.begin()));
        if (ns) candidate.taken_us = static_cast<double>(*ns) * 1e-3;
      }
    }
    found.push_back(candidate);
    if (pick.row->cost_in_place != nullptr && !in_place) {
      const double expected_us = costs_.microseconds_in_place(*pick.row, n_bytes);
      in_place = Candidate{pick.row->name, pick.segment_bytes, expected_us, std::nullopt, false, true};
    }
  }
  if (in_place) found.push_back(*in_place);
  return found;
}

}  // namespace ciranda
