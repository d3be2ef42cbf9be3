#include "backend/algorithms.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "collective/aligned_blocks.hpp"

namespace ciranda {
namespace {

std::uint64_t levels_of(std::uint64_t n) { return static_cast<std::uint64_t>(std::bit_width(n - 1)); }

// --- costs of allreduces

// Each rank copies its input into a slot, and combines all inputs.
Cost shm_one_shot_cost(const CostTerms& t) { return {t.call_ns + t.shared_ns, t.copy_fs + t.n_ranks * t.reduce_fs}; }

// Each rank copies the others' slices into its slot, combines its own slice, and copies all slices out.
Cost shm_two_shot_cost(const CostTerms& t) {
  return {t.call_ns + 2 * t.shared_ns, t.copy_fs * (2 * t.n_ranks - 1) / t.n_ranks + t.reduce_fs, t.shared_ns};
}

// Each rank combines its own slice in place, and copies the result to all others.
Cost in_place_cost(const CostTerms& t) {
  return {t.call_ns + 2 * t.shared_ns, t.reduce_fs + t.others() * t.copy_fs / t.n_ranks};
}

// A host's ranks share its link, and all send as much as one.
std::uint64_t fs_to_all(const CostTerms& t) {
  return t.on_host * t.elsewhere() * t.link_fs + t.neighbours() * t.channel_fs;
}
std::uint64_t ns_to_all(const CostTerms& t) {
  return (t.elsewhere() > 0 ? t.link_ns : t.channel_ns) + t.others() * t.message_ns;
}

// Arriving inputs are kept in scratch memory until all have arrived.
Cost direct_one_shot_cost(const CostTerms& t) {
  return {t.call_ns + ns_to_all(t), fs_to_all(t) + t.n_ranks * t.reduce_fs + t.others() * t.copy_fs};
}
Cost direct_two_shot_cost(const CostTerms& t) {
  return {t.call_ns + 2 * ns_to_all(t), 2 * fs_to_all(t) / t.n_ranks + t.reduce_fs, 2 * t.others() * t.message_ns};
}

// A host sends to each other host a share of each of its parts, and a share of the result.
Cost by_hosts_cost(const CostTerms& t) {
  const std::uint64_t other_hosts = t.n_hosts - 1;
  const std::uint64_t messages_ns = 2 * (t.neighbours() + other_hosts) * t.message_ns;
  return {t.call_ns + 2 * (t.channel_ns + t.link_ns) + messages_ns,
          (t.most_parts + 1) * other_hosts * t.link_fs / t.n_hosts + 2 * t.neighbours() * t.channel_fs / t.n_sharing +
              (t.on_host + t.most_parts) * t.reduce_fs / t.n_sharing,
          messages_ns};
}

// At each level a rank sends its whole partial result to another rank, and receives one; within the host at first,
// while blocks are smaller than a host.
Cost doubling_cost(const CostTerms& t) {
  const AlignedBlocks blocks{static_cast<int>(t.n_ranks)};
  std::uint64_t rounds_ns = 0;
  std::uint64_t fs_per_byte = 0;
  for (int level = 0; level < blocks.n_levels(); ++level) {
    const bool is_within = std::uint64_t{1} << level < t.on_host;
    const auto n_targets = static_cast<std::uint64_t>(blocks.most_targets(level));
    rounds_ns += (is_within ? t.channel_ns : t.link_ns) + n_targets * t.message_ns;
    fs_per_byte += n_targets * (is_within ? t.channel_fs : t.on_host * t.link_fs) + 2 * t.reduce_fs;
  }
  return {t.call_ns + rounds_ns, t.copy_fs + fs_per_byte, rounds_ns, 0, rounds_ns};
}

// --- costs of broadcasts: over hosts, and then within a host. A rank that forwards receives and sends at the same
// time.

// The root does all the work, so other ranks on its core do not delay it.
Cost star_cost(const CostTerms& t) {
  const std::uint64_t channel_fs = t.channel_fs / t.on_core;
  return {t.call_ns + ns_to_all(t),
          t.elsewhere() * t.link_fs + (t.neighbours() > 0 ? std::max(t.neighbours(), t.on_core) * channel_fs : 0)};
}

Cost tree_cost(const CostTerms& t) {
  const std::uint64_t host_rounds = levels_of(t.n_hosts);
  const std::uint64_t local_rounds = levels_of(t.on_host);
  return {t.call_ns + host_rounds * (t.link_ns + t.message_ns) + local_rounds * (t.channel_ns + t.message_ns),
          host_rounds * t.link_fs + local_rounds * t.channel_fs, t.message_ns};
}

Cost chain_cost(const CostTerms& t) {
  const std::uint64_t host_hops = t.n_hosts - 1;
  const std::uint64_t to_link = host_hops > 0 ? t.link_fs : 0;
  const std::uint64_t to_neighbour = t.neighbours() > 0 ? t.channel_fs : 0;
  return {t.call_ns + host_hops * (t.link_ns + t.message_ns) + t.neighbours() * (t.channel_ns + t.message_ns),
          to_link + to_neighbour, t.message_ns,
          (host_hops > 0 ? host_hops - 1 : 0) * to_link + (t.neighbours() > 0 ? t.neighbours() - 1 : 0) * to_neighbour};
}

// --- conditions

bool fits_a_slot(const Conditions& c, std::size_t n_bytes) { return n_bytes <= c.slot_bytes; }

// Rounding must apply to the inputs. If it applies to sums of hosts, every algorithm must form these sums first.
bool rounds_inputs(const Conditions& c, std::size_t /*n_bytes*/) {
  return !c.rounding.is_on() || c.rounding.is_of_inputs();
}

bool hosts_can_combine(const Conditions& c, std::size_t /*n_bytes*/) {
  return c.combines_in_parts && c.hosts_combine && !c.rounding.is_of_inputs();
}

// With two ranks it would equal one shot. If one_shot_bytes limits that, larger calls use algorithms that divide the
// work.
bool can_double(const Conditions& c, std::size_t /*n_bytes*/) {
  return c.combines_in_parts && c.n_ranks > 2 && (!c.options.one_shot_bytes || !c.options.algorithm.empty());
}

constexpr auto kArena = Memory::kArena;
constexpr auto kChannels = Memory::kChannels;

// The rows of allreduce. A reduce uses the same algorithms: its plan lists the receivers.
constexpr AlgorithmRow kShmOneShot{.collective = Collective::kAllreduce,
                                   .needs = kArena,
                                   .name = "shm one-shot",
                                   .start = shm_allreduce_one_shot,
                                   .cost = shm_one_shot_cost,
                                   .is_possible = fits_a_slot,
                                   .is_one_shot = true};
constexpr AlgorithmRow kShmTwoShot{Collective::kAllreduce, kArena,           "shm two-shot", shm_allreduce_two_shot,
                                   shm_two_shot_cost,      Segments::kSlots, nullptr,        in_place_cost};
constexpr AlgorithmRow kDirectOneShot{.collective = Collective::kAllreduce,
                                      .needs = kChannels,
                                      .name = "direct one-shot",
                                      .start = direct_allreduce_one_shot,
                                      .cost = direct_one_shot_cost,
                                      .is_one_shot = true};
constexpr AlgorithmRow kDirectTwoShot{
    Collective::kAllreduce, kChannels,        "direct two-shot", direct_allreduce_two_shot,
    direct_two_shot_cost,   Segments::kPairs, rounds_inputs};
constexpr AlgorithmRow as_reduce(AlgorithmRow row) {
  row.collective = Collective::kReduce;
  return row;
}

constexpr std::array kAlgorithms{
    kShmOneShot,
    kShmTwoShot,
    kDirectOneShot,
    kDirectTwoShot,
    AlgorithmRow{Collective::kAllreduce, kChannels, "direct by-hosts", direct_allreduce_by_hosts, by_hosts_cost,
                 Segments::kBlocks, hosts_can_combine},
    AlgorithmRow{Collective::kAllreduce, kChannels, "direct doubling", direct_allreduce_doubling, doubling_cost,
                 Segments::kBlocks, can_double},
    as_reduce(kShmOneShot),
    as_reduce(kShmTwoShot),
    as_reduce(kDirectOneShot),
    as_reduce(kDirectTwoShot),
    AlgorithmRow{Collective::kReducescatter, Memory::kSharedSlots, "shm reducescatter", shm_reducescatter},
    AlgorithmRow{Collective::kReducescatter, kChannels, "direct reducescatter", direct_reducescatter},
    AlgorithmRow{Collective::kBroadcast, kArena, "shm broadcast", shm_broadcast},
    AlgorithmRow{Collective::kBroadcast, kChannels, "direct star", direct_broadcast_star, star_cost},
    AlgorithmRow{Collective::kBroadcast, kChannels, "direct tree", direct_broadcast_tree, tree_cost,
                 Segments::kPassedOn},
    AlgorithmRow{Collective::kBroadcast, kChannels, "direct chain", direct_broadcast_chain, chain_cost,
                 Segments::kPassedOn},
    AlgorithmRow{Collective::kAllgather, kArena, "shm exchange", shm_exchange},
    AlgorithmRow{Collective::kAllgather, kChannels, "direct exchange", direct_exchange},
    AlgorithmRow{Collective::kGather, kArena, "shm exchange", shm_exchange},
    AlgorithmRow{Collective::kGather, kChannels, "direct exchange", direct_exchange},
    AlgorithmRow{Collective::kAlltoall, Memory::kSharedSlots, "shm exchange", shm_exchange},
    AlgorithmRow{Collective::kAlltoall, kChannels, "direct exchange", direct_exchange},
    AlgorithmRow{Collective::kScatter, Memory::kSharedSlots, "shm exchange", shm_exchange},
    AlgorithmRow{Collective::kScatter, kChannels, "direct exchange", direct_exchange},
};

}  // namespace

std::span<const AlgorithmRow> algorithms() { return kAlgorithms; }

}  // namespace ciranda
