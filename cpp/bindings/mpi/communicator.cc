#include "bindings/mpi/communicator.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "bindings/mpi/errors.hpp"

namespace ciranda::mpi {
namespace {

constexpr std::size_t kMessageBytes = 512;

bool is_all(const std::vector<std::int32_t>& ranks, const native::Context& world) {
  return static_cast<std::int32_t>(ranks.size()) == ciranda_size(world.get());
}

std::vector<std::size_t> positions_in(std::vector<std::int32_t> sorted, const std::vector<std::int32_t>& ranks) {
  std::ranges::sort(sorted);
  std::vector<std::size_t> positions;
  positions.reserve(ranks.size());
  for (const std::int32_t rank : ranks) {
    positions.push_back(static_cast<std::size_t>(std::ranges::lower_bound(sorted, rank) - sorted.begin()));
  }
  return positions;
}

// Removes the process set, and so all that its ranks share in the engine.
void leave_set(ciranda_context* world, std::uint32_t formed) {
  const std::int64_t number = formed;
  ciranda_request request = CIRANDA_REQUEST_INIT;
  request.collective = CIRANDA_REMOVE_PROCESS_SET;
  request.arguments = &number;
  request.arguments_count = 1;
  ciranda_submit(world, &request, nullptr);
}

struct Communicators {
  std::mutex mutex;
  std::map<Comm, std::shared_ptr<Communicator>> known;
  Comm next = kFirstOwnComm;
};

// Never freed: threads of XLA may still run when the process ends.
Communicators& communicators() {
  static auto* const all = new Communicators;
  return *all;
}

}  // namespace

Communicator::Communicator(std::string name, std::vector<std::int32_t> ranks, int rank, std::uint32_t lane,
                           std::uint32_t nth)
    : name_(std::move(name)),
      ranks_(std::move(ranks)),
      rank_(rank),
      lane_(lane),
      nth_(nth),
      positions_(positions_in(ranks_, ranks_)),
      in_order_(std::ranges::is_sorted(ranks_)) {}

// Without a world, the functions of the engine's table may be missing.
Communicator::~Communicator() {
  if (formed_in_ == nullptr) return;
  leave_set(formed_in_, formed_);
  ciranda_context_release(formed_in_);
}

void Communicator::check() const {
  if (!broken_.empty()) throw Failure{broken_};
}

void Communicator::check(const native::Context& world) const {
  if (!world) throw Failure{native::kNotInitialized};
  const std::int32_t size = ciranda_size(world.get());
  const bool is_there = *std::ranges::max_element(ranks_) < size;
  if (is_there && ranks_[static_cast<std::size_t>(rank_)] == ciranda_rank(world.get())) return;
  throw Failure{"JAX has begun with other ranks than the world of this process has now (" + std::to_string(size) +
                "): start the program again"};
}

SetAndLane Communicator::set_and_lane(const native::Context& world) {
  check(world);
  if (is_all(ranks_, world)) return {0, lane_};
  const std::lock_guard forming(forming_);  // held until all ranks have formed the set
  if (formed_in_ != world.get()) {
    std::vector<std::int32_t> sorted = ranks_;
    std::ranges::sort(sorted);
    std::array<char, kMessageBytes> message{};
    const ciranda_status status = ciranda_form_process_set(world.get(), sorted.data(), sorted.size(), nth_, &formed_,
                                                           message.data(), message.size());
    if (status != CIRANDA_OK) throw Failure{message.data()};
    ciranda_context_release(formed_in_);
    formed_in_ = world.get();
    ciranda_context_retain(formed_in_);
  }
  return {formed_, 0};
}

std::string Communicator::name_of(const Signature& signature) {
  if (signature.is_split) return name_ + " split";
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = numbers_.try_emplace(signature, 0);
  if (is_new) found->second = next_numbers_[signature.way]++;
  const std::string number = "." + std::to_string(found->second);
  if (signature.collective != CIRANDA_TRANSFER) return name_ + number;
  const std::uint32_t turn = turns_[signature]++ % kTurns;
  const auto& [from, to] = signature.way;
  return name_ + "." + std::to_string(from) + "to" + std::to_string(to) + number + "." + std::to_string(turn);
}

void Communicator::forget(const Signature& signature) {
  const std::lock_guard lock(mutex_);
  numbers_.erase(signature);
}

std::uint32_t Communicator::count_split() {
  const std::lock_guard lock(mutex_);
  return n_splits_++;
}

std::shared_ptr<Communicator> communicator_of(Comm handle) {
  Communicators& all = communicators();
  const std::lock_guard lock(all.mutex);
  const auto found = all.known.find(handle);
  if (found != all.known.end()) {
    found->second->check();
    return found->second;
  }
  throw Failure{handle == kCommWorld ? "MPI_Init has not been called, or has failed"
                                     : "there is no such communicator (it was freed, or never made)"};
}

Comm add_communicator(std::shared_ptr<Communicator> communicator) {
  Communicators& all = communicators();
  const std::lock_guard lock(all.mutex);
  all.known.emplace(all.next, std::move(communicator));
  return all.next++;
}

void add_world(int rank, int size) {
  std::vector<std::int32_t> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  Communicators& all = communicators();
  const std::lock_guard lock(all.mutex);
  all.known[kCommWorld] = std::make_shared<Communicator>("jax", std::move(ranks), rank, 0U, 0U);
}

void break_world(const std::string& why_not) {
  Communicators& all = communicators();
  const std::lock_guard lock(all.mutex);
  all.known[kCommWorld] = std::make_shared<Communicator>(why_not);
}

void remove_communicator(Comm handle) {
  Communicators& all = communicators();
  const std::lock_guard lock(all.mutex);
  if (handle >= kFirstOwnComm) all.known.erase(handle);
}

}  // namespace ciranda::mpi
