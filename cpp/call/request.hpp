// Request: one call of one collective on one rank, as the user made it; Signature: the part on which all ranks must
// agree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/place.hpp"
#include "base/reduce_op.hpp"
#include "base/status.hpp"
#include "call/op_table.hpp"

namespace ciranda {

// What a peer may make us believe: larger values are refused, here and on the wire.
inline constexpr std::size_t kMaxNameBytes = 1024;
inline constexpr std::size_t kMaxTensorsPerRequest = 65536;
inline constexpr std::size_t kMaxDimensions = 64;

using Shape = std::vector<std::int64_t>;  // empty: a scalar

// "[3, 4]"
std::string to_string(const Shape& shape);
// The number of elements. REQUIRES: a shape that validate() has accepted (no overflow).
inline std::size_t count_of(std::span<const std::int64_t> shape) {
  std::size_t count = 1;
  for (const std::int64_t dimension : shape) count *= static_cast<std::size_t>(dimension);
  return count;
}

struct TensorSignature {
  DataType dtype = DataType::kFloat32;
  Shape shape;
  bool operator==(const TensorSignature&) const = default;
  std::size_t n_bytes() const { return count_of(shape) * size_of(dtype); }
  // Of one element of dimension 0. REQUIRES: not a scalar.
  std::size_t row_bytes() const { return count_of(std::span(shape).subspan(1)) * size_of(dtype); }
};

// First dimensions that ranks know of each other: [tensor][rank].
using FirstDims = std::vector<std::vector<std::int64_t>>;

// How many of n_rows each of n_ranks gets: the same, and one more each of the first n_rows mod n_ranks.
std::vector<std::int64_t> even_splits(std::int64_t n_rows, int n_ranks);

inline std::size_t sum_of(std::span<const std::int64_t> rows) {
  return static_cast<std::size_t>(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
}

// How many rows the result of a tensor has on the nth of n_ranks, if each rank's tensor has n_rows.
std::int64_t n_rows_of_result(Collective collective, std::int64_t n_rows, int nth, int n_ranks);

// What a call says beside its tensors, as far as its collective has a use for it: see used().
struct Terms {
  Collective collective = Collective::kAllreduce;
  ReduceOp op = ReduceOp::kSum;  // reductions only
  std::int32_t root = -1;        // rooted collectives only
  double prescale = 1.0;
  double postscale = 1.0;
  bool divides_by_all = false;  // an average over ranks that have joined too, which count as zeros
  bool operator==(const Terms&) const = default;
};

// Without what the collective has no use for.
inline Terms used(const Terms& terms) {
  const CollectiveInfo& facts = info(terms.collective);
  Terms to = facts.is_reduction ? terms : Terms{.collective = terms.collective};
  to.root = facts.has_root ? terms.root : -1;
  return to;
}

// What travels when a name is used for the first time, or differently from last time. A grouped call is one request
// with several tensors: that makes it all or nothing by construction.
struct Signature : Terms {
  std::vector<TensorSignature> tensors;
  // What else must agree: the ranks of a process set that is made; the rows of tensors that keep theirs (alltoall).
  std::vector<std::int64_t> arguments;
  bool is_weighted = false;  // an average in which every rank has a weight; see Request
  bool needs_all = false;    // fails while a rank has joined
  bool operator==(const Signature&) const = default;
  std::size_t n_bytes() const;
};

// Memory of one tensor of a request. `output` may equal `input`; null where the engine allocates, or where this rank
// gets nothing (reduce). Where both lie is no part of the signature: other ranks may have the tensor on other devices,
// but one call's tensors on one rank lie on one device. What the engine allocates lies there too.
struct TensorMemory {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  Place place = {};
};

// How a call is waited for. Results are the same whatever it says.
struct Hints {
  // Lane::submit changes these two, where a thread waits before the call is taken in.
  bool is_deferrable = false;  // somebody will wait() or poll(): it may be held back to travel with others
  bool is_awaited = false;     // the submitter waits at once: others need not be told before
  bool is_early = false;       // with is_awaited: but does something else first; it may be at a direct round meanwhile
  // What calls back does so on the thread that makes progress, and only hands on: see call/callbacks.hpp.
  bool calls_back_directly = false;
};

struct Request : Hints {
  std::string name;  // identifies the request across ranks. Where it is not cacheable, with a number that it is given
  Signature signature;
  std::uint32_t process_set = 0;     // 0: all ranks
  std::uint32_t lane = 0;            // of the process set's lanes
  std::vector<TensorMemory> memory;  // one a tensor; owned by the caller until the operation has completed
  // Alltoall, and scatter on the root: splits[tensor][rank] rows of this rank's tensor go to each rank. No entry for a
  // tensor, or an empty one: equal parts.
  std::vector<std::vector<std::int64_t>> splits;
  Status refusal;  // why the splits cannot be: see settle_splits()
  // Of what is ready on all ranks, a request of a higher one is carried out first. The coordinator goes by what one of
  // the ranks has said; all should say the same.
  std::int32_t priority = 0;
  double weight = 1.0;  // of this rank, if the signature is weighted. It travels with the data and need not agree
  // Allgather: the outputs have room for as many rows of each rank as this rank contributes. They are used if all ranks
  // contribute as many. Otherwise, and without this, the engine allocates. Alltoall: the outputs have the shapes of the
  // inputs, and may be the same memory; then all ranks must contribute as much, in equal parts.
  bool has_room_for_all = false;
  bool is_cacheable = true;  // false where calls of one name, or none, are numbered as they come: see AutoNames
};

// "allreduce 'x'"
std::string call_text(Collective collective, const std::string& name);
inline std::string call_text(const Request& request) { return call_text(request.signature.collective, request.name); }
// The shortest text that only this number has: numbers that differ never look the same.
std::string exact_text(double value);

// InvalidArgument unless the request can be carried out whatever the other ranks say. `ranks` are those of its process
// set, ascending.
Status validate(const std::string& name, const Signature& signature, std::span<const int> ranks);
// Its memory too. `rank` is this rank's, in the world.
Status validate(const Request& request, std::span<const int> ranks, int rank);

// A group that is reduced in place may hold a tensor several times. All but the first get memory of their own, which is
// returned: of what the results of all are, one is enough. Null if there are none. REQUIRES: a request that validate()
// has accepted, whose tensors are in the host's memory.
std::shared_ptr<std::byte> move_repeated(Request& request);

// Of a collective whose result goes to the caller's memory: whether this rank, `rank` in the world, gets one.
bool has_result(const Signature& signature, int rank);

// Whether it is an alltoall of which every rank gets as many rows as it sends, into memory that is there.
bool keeps_rows(const Request& request);

// InvalidArgument if memory cannot hold the tensors.
Status check_sizes(const std::string& name, const Signature& signature);

// For collectives that take splits: fills in those that were left out, and sets the first dimensions of the signature
// to 0: they need not agree, and a signature that stays the same need not be agreed on again. Splits that cannot be are
// replaced by no rows, and the reason is kept in the request: only when the ranks exchange their splits does it fail,
// so that all of them hear of it. Where a rank gets as many rows as it sends, those must agree, and so must that all
// ranks take part. `size`, `rank`: the number of ranks; this rank's, in the world. REQUIRES: a valid request.
void settle_splits(Request& request, int size, int rank);

// Whether calls of two names can be carried out together, as one entry of the log.
bool can_travel_together(const Signature& a, const Signature& b);

// Why two signatures for the same name cannot be carried out together; empty when they can. The text names the
// property and both values, as in "dtype float32 on rank 0 but float64 on rank 1".
std::string describe_mismatch(const Signature& a, int rank_a, const Signature& b, int rank_b);

}  // namespace ciranda
