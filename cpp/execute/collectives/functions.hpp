// The functions that execute each collective. The table below has a row for each; the functions are in the files beside
// this one. call/op_table.hpp has the properties of each collective.
//
// Ranks in plans are numbers of members in the given mesh, not ranks of the world; these functions translate.
//
// Called by DataPlane (make_plans(), in make_plans.cc, which calls a row's `work`) and RoundCall (a row's `combine`);
// the functions of the rows are in execute/collectives/; one thread (the holder of the progress lock).
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "agree/participant.hpp"
#include "base/status.hpp"
#include "call/op_table.hpp"
#include "execute/direct_tensor.hpp"
#include "execute/in_flight.hpp"
#include "execute/work.hpp"
#include "transport/mesh.hpp"

namespace ciranda {

// Converts an entry of the response log into plans for a backend. On an error (no memory for an output) this rank
// cannot continue, so the world breaks. The requests, and memory allocated for them, stay in `in_flight`, which must
// keep them until the work is done.
Result<Work> make_plans(const Participant::Execute& entry, InFlight& in_flight, const Mesh& mesh);

std::vector<const Request*> requests_of(const Participant::Execute& entry, InFlight& in_flight);

// The members that have not joined. REQUIRES: an entry with requests.
std::vector<int> contributors(const Participant::Execute& entry, int n_members);

// The work for an entry of the log, as in make_plans(), which also sets divisors. An entry has one request, or several
// that are fused.
using MakeWork = Result<Work>(const Participant::Execute& entry, InFlight& in_flight, const Mesh& mesh);

// Computes this member's result from the contributions to a direct round. `contributed`: one for each member, or the
// root's alone if only the root contributes; this member's own is its input. The vector is overwritten. The output may
// be the input if tensors keep their shape.
using Combine = void(const DirectTensor& tensor, std::size_t self, std::span<const std::byte*> contributed,
                     std::byte* output);

MakeWork reduce_work, adasum_work, weighted_work, broadcast_work, gather_work, reducescatter_work, exchange_work,
    scan_work;
Combine reduce_at_hand, broadcast_at_hand, gather_at_hand, reducescatter_at_hand, exchange_at_hand, scan_at_hand;

struct CollectiveFunctions {
  Collective collective;
  MakeWork* work = nullptr;    // null: nothing to do once all ranks are ready
  Combine* combine = nullptr;  // null: it has no direct rounds, or nothing to combine in them
};

inline constexpr std::array kFunctions{
    CollectiveFunctions{Collective::kAllreduce, reduce_work, reduce_at_hand},
    CollectiveFunctions{Collective::kAllgather, gather_work, gather_at_hand},
    CollectiveFunctions{Collective::kBroadcast, broadcast_work, broadcast_at_hand},
    CollectiveFunctions{Collective::kBarrier},
    CollectiveFunctions{Collective::kReducescatter, reducescatter_work, reducescatter_at_hand},
    CollectiveFunctions{Collective::kAlltoall, exchange_work, exchange_at_hand},
    CollectiveFunctions{Collective::kReduce, reduce_work},
    CollectiveFunctions{Collective::kGather, gather_work},
    CollectiveFunctions{Collective::kScatter, exchange_work},
    CollectiveFunctions{Collective::kTransfer, broadcast_work},
    CollectiveFunctions{Collective::kJoin},
    CollectiveFunctions{Collective::kAddProcessSet},
    CollectiveFunctions{Collective::kRemoveProcessSet},
    CollectiveFunctions{Collective::kAddLane},
    CollectiveFunctions{Collective::kScan, scan_work, scan_at_hand},
};
static_assert(kFunctions.size() == kNumCollectives);
static_assert(
    [] {
      for (std::size_t i = 0; i < kNumCollectives; ++i) {
        const CollectiveInfo& facts = kCollectives[i];
        if (kFunctions[i].collective != facts.collective) return false;
        if ((kFunctions[i].work != nullptr) != facts.has_tensors) return false;
        if ((kFunctions[i].combine != nullptr) != facts.may_be_call) return false;
      }
      return true;
    }(),
    "rows stand in the order of the facts, and have the functions that these ask for");

constexpr const CollectiveFunctions& functions(Collective c) { return kFunctions[static_cast<std::size_t>(c)]; }

}  // namespace ciranda
