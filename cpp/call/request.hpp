// Request: one call of one collective on one rank, as the user made it; Signature: the part on which all ranks must
// agree. A plain value: made and prepared on the thread that submits the call, without the lock, then read by the
// holder of the progress lock. Used by bindings/, agree/, call/, engine/, execute/ and fuse/, and
// through Call by capi/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/exported.hpp"
#include "base/place.hpp"
#include "base/reduce_op.hpp"
#include "base/status.hpp"
#include "base/way.hpp"
#include "call/op_table.hpp"

namespace ciranda {

// Limits for values from other ranks: larger values are refused, here and on the wire.
inline constexpr std::size_t kMaxNameBytes = 1024;
inline constexpr std::size_t kMaxTensorsPerRequest = 65536;
inline constexpr std::size_t kMaxDimensions = 64;

using Shape = std::vector<std::int64_t>;  // empty: a scalar

// "[3, 4]"
CIRANDA_EXPORTED std::string to_string(const Shape& shape);
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
  // Bytes of one row: an element of dimension 0. REQUIRES: not a scalar.
  std::size_t row_bytes() const { return count_of(std::span(shape).subspan(1)) * size_of(dtype); }
};

// First dimensions of all ranks' tensors: [tensor][rank].
using FirstDims = std::vector<std::vector<std::int64_t>>;

// The rows of each rank when n_rows are divided evenly; the first n_rows mod n_ranks ranks get one more.
std::vector<std::int64_t> even_splits(std::int64_t n_rows, int n_ranks);

inline std::size_t sum_of(std::span<const std::int64_t> rows) {
  return static_cast<std::size_t>(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
}

// The rows of the result on the nth of n_ranks, if each rank's tensor has n_rows.
CIRANDA_EXPORTED std::int64_t n_rows_of_result(Collective collective, std::int64_t n_rows, int nth, int n_ranks);

// The properties of a call beside its tensors. used() drops those that its collective does not use.
struct Terms {
  Collective collective = Collective::kAllreduce;
  ReduceOp op = ReduceOp::kSum;  // reductions only
  std::int32_t root = -1;        // rooted collectives only
  double prescale = 1.0;
  double postscale = 1.0;
  bool divides_by_all = false;  // an average that counts ranks that have joined, as zeros
  bool operator==(const Terms&) const = default;
};

// Drops what the collective does not use.
inline Terms used(const Terms& terms) {
  const CollectiveInfo& facts = info(terms.collective);
  Terms to = facts.is_reduction ? terms : Terms{.collective = terms.collective};
  to.root = facts.has_root ? terms.root : -1;
  return to;
}

// The part of a request on which all ranks must agree. Sent when a name is used for the first time, or differently from
// the last time. A grouped call is one request with several tensors, so it is executed as a whole or fails as a whole.
struct Signature : Terms {
  std::vector<TensorSignature> tensors;
  // Further values that must agree: the ranks of a new process set; the rows of tensors of an alltoall that keeps them.
  std::vector<std::int64_t> arguments;
  bool is_weighted = false;  // an average with a weight for every rank; see Request
  bool needs_all = false;    // fails if some rank has joined
  bool operator==(const Signature&) const = default;
  std::size_t n_bytes() const;
};

// Memory of one tensor of a request. `output` may equal `input`; null if the engine allocates, or if this rank gets no
// result (reduce). The place is no part of the signature: ranks may have the tensor on different devices. One call's
// tensors on one rank are on one device, or in host memory; memory that the engine allocates is where its tensor is.
struct TensorMemory {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  Place place = {};
};

// How the caller waits for a call. No result depends on this.
struct Hints {
  // Lane::submit changes these two if a thread waits before the call is taken in.
  bool is_deferrable = false;  // the caller will wait() or poll(): the call may be held back to be fused
  bool is_awaited = false;     // the submitter waits at once: a wake-up of others may be deferred
  bool is_early = false;       // with is_awaited: the caller waits later, and the call may enter a direct round before
  // Callbacks run on the thread that runs the progress loop, and only hand work on: see call/callbacks.hpp.
  bool calls_back_directly = false;
};

struct Request : Hints {
  std::string name;  // identifies the request on all ranks. If not cacheable, a number is appended
  Signature signature;
  std::uint32_t process_set = 0;     // 0: all ranks
  std::uint32_t lane = 0;            // index among the process set's lanes
  std::vector<TensorMemory> memory;  // one entry for each tensor; owned by the caller until the operation has completed
  // Alltoall, and scatter on the root: splits[tensor][rank] rows of this rank's tensor go to each rank. Equal parts if
  // a tensor's entry is missing or empty.
  std::vector<std::vector<std::int64_t>> splits;
  Status refusal;  // why the splits are invalid: see settle_splits()
  // Among requests that are ready on all ranks, a higher priority is executed first. The coordinator uses the value of
  // one of the ranks; all should give the same.
  std::int32_t priority = 0;
  // Where its tensors lie, as far as the way of the call depends on it. Need not agree.
  HomeId home = kHostHome;
  double weight = 1.0;  // this rank's, if the signature is weighted. Sent with the data; need not agree
  // Allgather: the outputs have room for as many rows of each rank as this rank contributes. They are used if all ranks
  // contribute equally many; otherwise the engine allocates. Alltoall: the outputs have the shapes of the inputs, and
  // may be the same memory; then all ranks must contribute equally many, in equal parts.
  bool has_room_for_all = false;
  bool is_cacheable = true;  // false if calls that share a name, or have none, are numbered: see AutoNames
};

// "allreduce 'x'"
std::string call_text(Collective collective, const std::string& name);
inline std::string call_text(const Request& request) { return call_text(request.signature.collective, request.name); }
// The shortest text that identifies this number: different numbers have different texts.
std::string exact_text(double value);

// The index of the first tensor that is on a device; the number of tensors if all are in host memory.
std::size_t first_on_device(const Request& request);

// InvalidArgument unless the request is valid by itself, whatever the other ranks report. `ranks`: those of its process
// set, ascending.
Status validate(const std::string& name, const Signature& signature, std::span<const int> ranks);
// Also checks its memory. `rank`: this rank's number in the world.
Status validate(const Request& request, std::span<const int> ranks, int rank);

// A group that is reduced in place may contain a tensor several times. Gives all but the first occurrence memory of
// their own, since one copy of the result suffices, and returns that memory; null if no tensor is repeated. REQUIRES:
// validate() has accepted the request, and its tensors are in host memory.
std::shared_ptr<std::byte> move_repeated(Request& request);

// Whether this rank (`rank` in the world) gets a result, for collectives whose result goes to the caller's memory.
bool has_result(const Signature& signature, int rank);

// Whether it is an alltoall into given memory, in which every rank receives as many rows as it sends.
bool keeps_rows(const Request& request);

// InvalidArgument if the tensors are larger than any memory.
Status check_sizes(const std::string& name, const Signature& signature);

// For collectives that take splits. Fills in missing splits, and sets the first dimensions of the signature to 0: these
// need not agree, so an otherwise unchanged signature is not agreed on again. Invalid splits are replaced by no rows,
// and the reason is stored in the request: it fails only when the ranks exchange their splits, so that all ranks get
// the error. If each rank receives as many rows as it sends, the rows must agree, and all ranks must take part. `size`:
// the number of ranks; `rank`: this rank's number in the world. REQUIRES: a valid request.
void settle_splits(Request& request, int size, int rank);

// Whether calls of two names can be fused into one entry of the log.
bool can_travel_together(const Signature& a, const Signature& b);

// Why two signatures of one name do not match; empty if they do. The text names the property and both values, as in
// "dtype float32 on rank 0 but float64 on rank 1".
std::string describe_mismatch(const Signature& a, int rank_a, const Signature& b, int rank_b);

}  // namespace ciranda
