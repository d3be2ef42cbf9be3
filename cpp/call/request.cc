#include "call/request.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>

namespace ciranda {
namespace {

// A larger tensor is surely a mistake: 2^56 bytes is more than an address space holds.
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 56;

// Adds the tensor's bytes to n_total_bytes.
Status check_shape(const std::string& name, const TensorSignature& tensor, std::uint64_t& n_total_bytes) {
  std::uint64_t n_bytes = size_of(tensor.dtype);
  for (const std::int64_t dimension : tensor.shape) {
    if (dimension < 0) {
      return Status::invalid_argument("'" + name + "': shape " + to_string(tensor.shape) +
                                      " has a negative dimension.");
    }
    if (dimension != 0 && n_bytes > kMaxBytes / static_cast<std::uint64_t>(dimension)) {
      return Status::invalid_argument("'" + name + "': a tensor of shape " + to_string(tensor.shape) +
                                      " is larger than any memory.");
    }
    n_bytes *= static_cast<std::uint64_t>(dimension);
  }
  if (n_bytes > kMaxBytes - n_total_bytes) {
    return Status::invalid_argument("'" + name + "': the tensors of the group together are larger than any memory.");
  }
  n_total_bytes += n_bytes;
  return Status::ok_status();
}

// "average, sum, product": the names of the rows that fit.
template <typename Table, typename Fits>
std::string names_of(const Table& table, const Fits& fits) {
  std::string list;
  for (const auto& row : table) {
    if (!fits(row)) continue;
    if (!list.empty()) list += ", ";
    list += row.name;
  }
  return list;
}

// The types that the op supports, and the ops that support the type.
std::string alternatives(ReduceOp op, DataType dtype) {
  const std::string types = names_of(kDataTypes, [&](const DataTypeInfo& row) { return accepts(op, row.dtype); });
  const std::string ops = names_of(kReduceOps, [&](const ReduceOpInfo& row) { return accepts(row.op, dtype); });
  return std::string(to_string(op)) + " takes " + types + "; " + std::string(to_string(dtype)) +
         " can be combined by " + ops;
}

bool can_be_weighted(DataType dtype) {
  return info(dtype).type_class == TypeClass::kFloating || info(dtype).type_class == TypeClass::kComplex;
}

// "allreduce 'name': ". Made only for errors, since every call passes here.
std::string place_text(const Signature& signature, const std::string& name) {
  return call_text(signature.collective, name) + ": ";
}

// The collectives that support every op.
std::string names_of_any() {
  return names_of(kCollectives, [](const CollectiveInfo& row) { return row.reduces == Reduces::kAny; });
}

Status check_weighted(const std::string& name, const Signature& signature) {
  const auto where = [&] { return place_text(signature, name); };
  if (info(signature.collective).reduces != Reduces::kAny || signature.op != ReduceOp::kAverage) {
    return Status::invalid_argument(where() + "a weight needs op=Average, here it is " +
                                    std::string(to_string(signature.op)) + ", and an " + names_of_any() + ".");
  }
  for (const TensorSignature& tensor : signature.tensors) {
    if (can_be_weighted(tensor.dtype)) continue;
    return Status::invalid_argument(
        where() + "there is no weighted average of " + std::string(to_string(tensor.dtype)) + ", only of " +
        names_of(kDataTypes, [](const DataTypeInfo& row) { return can_be_weighted(row.dtype); }) + ".");
  }
  return Status::ok_status();
}

Status check_divisor(const std::string& name, const Signature& signature) {
  if (signature.op != ReduceOp::kAverage || signature.is_weighted) {
    return Status::invalid_argument(place_text(signature, name) +
                                    "divisor=\"world\" is one of op=Average without weights, here it is " +
                                    (signature.is_weighted ? "weighted" : std::string(to_string(signature.op))) + ".");
  }
  return Status::ok_status();
}

Status check_reduction(const std::string& name, const Signature& signature) {
  const auto where = [&] { return place_text(signature, name); };
  const bool is_scaled = signature.prescale != 1.0 || signature.postscale != 1.0;
  if (!info(signature.op).is_elementwise && info(signature.collective).reduces != Reduces::kAny) {
    return Status::invalid_argument(where() + "the reduce op " + std::string(to_string(signature.op)) + " is one of " +
                                    names_of_any() + " only.");
  }
  for (const TensorSignature& tensor : signature.tensors) {
    const auto what = [&] {
      return std::string(to_string(signature.op)) + " of " + std::string(to_string(tensor.dtype));
    };
    if (!accepts(signature.op, tensor.dtype)) {
      return Status::invalid_argument(where() + "there is no " + what() + ". " +
                                      alternatives(signature.op, tensor.dtype) + ".");
    }
    if (is_scaled && !accepts_factors(signature.op, tensor.dtype)) {
      return Status::invalid_argument(where() + what() +
                                      " cannot be scaled; leave prescale_factor and postscale_factor at 1.");
    }
  }
  if (signature.is_weighted) {
    if (Status status = check_weighted(name, signature); !status.ok()) return status;
  }
  if (signature.divides_by_all) {
    if (Status status = check_divisor(name, signature); !status.ok()) return status;
  }
  if (!std::isfinite(signature.prescale) || !std::isfinite(signature.postscale)) {
    return Status::invalid_argument(where() + "prescale_factor and postscale_factor must be finite numbers.");
  }
  return Status::ok_status();
}

std::string quoted_factors(const Signature& signature) {
  return "(" + exact_text(signature.prescale) + ", " + exact_text(signature.postscale) + ")";
}

// "x on rank 0 but y on rank 1"
std::string differ(std::string_view property, const std::string& a, int rank_a, const std::string& b, int rank_b) {
  return std::string(property) + " " + a + " on rank " + std::to_string(rank_a) + " but " + b + " on rank " +
         std::to_string(rank_b);
}

bool shapes_agree(const Shape& a, const Shape& b, bool first_dim_may_differ) {
  if (!first_dim_may_differ) return a == b;
  if (a.size() != b.size()) return false;
  for (std::size_t i = 1; i < a.size(); ++i) {
    if (a[i] != b[i]) return false;
  }
  return true;
}

// If the collective takes splits, the signature does not contain the first dimension.
std::string shown_shape(const Shape& shape, const CollectiveInfo& row) {
  if (!row.takes_splits || shape.empty()) return to_string(shape);
  std::string out = "[*";
  for (std::size_t i = 1; i < shape.size(); ++i) out += ", " + std::to_string(shape[i]);
  return out + "]";
}

std::string describe_tensor_mismatch(const Signature& a, int rank_a, const Signature& b, int rank_b) {
  const CollectiveInfo& row = info(a.collective);
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    const std::string which = a.tensors.size() == 1 ? "" : " of tensor " + std::to_string(i) + " of the group";
    if (a.tensors[i].dtype != b.tensors[i].dtype) {
      return differ("dtype" + which, std::string(to_string(a.tensors[i].dtype)), rank_a,
                    std::string(to_string(b.tensors[i].dtype)), rank_b);
    }
    const bool is_first_free = row.first_dim_may_differ || row.takes_splits;
    if (!shapes_agree(a.tensors[i].shape, b.tensors[i].shape, is_first_free)) {
      return differ("shape" + which, shown_shape(a.tensors[i].shape, row), rank_a, shown_shape(b.tensors[i].shape, row),
                    rank_b) +
             (is_first_free ? " (only the first dimension may differ)" : "");
    }
  }
  return {};
}

std::string tensor_text(const Request& request, std::size_t index) {
  const Signature& signature = request.signature;
  return call_text(request) +
         (signature.tensors.size() == 1 ? ": " : ", tensor " + std::to_string(index) + " of the group: ");
}

Status check_given_splits(const Request& request, std::size_t index, int size) {
  const std::vector<std::int64_t>& splits = request.splits[index];
  const Shape& shape = request.signature.tensors[index].shape;
  const std::string where = tensor_text(request, index) + "splits ";
  if (splits.size() != static_cast<std::size_t>(size)) {
    return Status::invalid_argument(where + "must have one number for each of the " + std::to_string(size) +
                                    " ranks, these are " + std::to_string(splits.size()) + ".");
  }
  std::int64_t n_left = shape.front();
  for (const std::int64_t rows : splits) {
    if (rows < 0) return Status::invalid_argument(where + to_string(splits) + " has a negative number.");
    n_left = rows > n_left ? -1 : n_left - rows;
    if (n_left < 0) break;
  }
  if (n_left != 0) {
    return Status::invalid_argument(where + to_string(splits) + " must add up to the first dimension of the tensor, " +
                                    "whose shape is " + to_string(shape) + ".");
  }
  return Status::ok_status();
}

Status check_splits(const Request& request, int size) {
  const CollectiveInfo& row = info(request.signature.collective);
  const std::size_t n_tensors = request.signature.tensors.size();
  if (!request.splits.empty() && request.splits.size() != n_tensors) {
    return Status::invalid_argument(call_text(request) + ": there are " + std::to_string(n_tensors) +
                                    " tensors but splits for " + std::to_string(request.splits.size()) + ".");
  }
  for (std::size_t i = 0; i < n_tensors; ++i) {
    if (!request.splits.empty() && !request.splits[i].empty()) {
      if (Status status = check_given_splits(request, i, size); !status.ok()) return status;
    } else if (!row.has_root && request.signature.tensors[i].shape.front() % size != 0) {
      return Status::invalid_argument(tensor_text(request, i) + "the first dimension of " +
                                      to_string(request.signature.tensors[i].shape) + " cannot be cut into " +
                                      std::to_string(size) + " equal parts, one for each rank; give splits.");
    }
  }
  return Status::ok_status();
}

Status check_given_outputs(const Request& request) {
  for (std::size_t i = 0; i < request.memory.size(); ++i) {
    if (request.memory[i].output != nullptr || request.signature.tensors[i].n_bytes() == 0) continue;
    return Status::invalid_argument(tensor_text(request, i) + "the request claims memory for the result, but none " +
                                    "was given (a null pointer).");
  }
  return Status::ok_status();
}

// If memory for results is optional, the caller gives it for all tensors of a group, or for none. An output without
// rows may be null.
Status check_outputs(const Request& request, int size) {
  if (keeps_rows(request)) return check_given_outputs(request);
  if (info(request.signature.collective).output != Output::kMayBeGiven) return Status::ok_status();
  const auto is_given = [](const TensorMemory& memory) { return memory.output != nullptr; };
  if (std::none_of(request.memory.begin(), request.memory.end(), is_given)) return Status::ok_status();
  for (std::size_t i = 0; i < request.memory.size(); ++i) {
    const TensorSignature& tensor = request.signature.tensors[i];
    const bool may_be_empty = tensor.shape.front() < size || tensor.n_bytes() == 0;
    if (is_given(request.memory[i]) || may_be_empty) continue;
    return Status::invalid_argument(tensor_text(request, i) + "give an output for every tensor of the group, or none.");
  }
  return Status::ok_status();
}

// An empty tensor needs no memory; any other needs an input and, for a result, an output. One pointer may serve as
// both.
Status check_memory(const Request& request, int rank) {
  const Signature& signature = request.signature;
  const CollectiveInfo& row = info(signature.collective);
  const bool is_root = row.has_root && signature.root == rank;
  const bool needs_output = !row.allocates_output && row.receives(is_root);
  if (!row.gives(is_root) && !needs_output) return Status::ok_status();
  for (std::size_t i = 0; i < request.memory.size(); ++i) {
    const TensorMemory& memory = request.memory[i];
    const bool lacks_all = memory.input == nullptr && memory.output == nullptr;
    const bool lacks_output = memory.output == nullptr && needs_output;
    if (signature.tensors[i].n_bytes() == 0 || !(lacks_all || lacks_output)) continue;
    return Status::invalid_argument(tensor_text(request, i) + (lacks_all ? "no memory" : "no output memory") +
                                    " was given (a null pointer) for a tensor of shape " +
                                    to_string(signature.tensors[i].shape) + ".");
  }
  return Status::ok_status();
}

// The memory of one result of a group.
struct Extent {
  std::span<const std::byte> bytes;
  std::size_t tensor;

  const std::byte* end() const { return bytes.data() + bytes.size(); }
};

// Sorted by address, without empty results.
std::vector<Extent> extents_of_results(const Request& request) {
  std::vector<Extent> extents;
  extents.reserve(request.memory.size());
  for (std::size_t i = 0; i < request.memory.size(); ++i) {
    const std::byte* const output = request.memory[i].output;
    const std::size_t n_bytes = output == nullptr ? 0 : request.signature.tensors[i].n_bytes();
    if (n_bytes > 0) extents.push_back({{output, n_bytes}, i});
  }
  std::ranges::stable_sort(extents, std::less<>(), [](const Extent& extent) { return extent.bytes.data(); });
  return extents;
}

// A tensor without an input of its own is read from its output memory.
const std::byte* input_of(const TensorMemory& memory) { return memory.input != nullptr ? memory.input : memory.output; }

bool are_alike(const Request& request, std::size_t a, std::size_t b) {
  const TensorMemory& memory = request.memory[a];
  const TensorMemory& other = request.memory[b];
  const TensorSignature& tensor = request.signature.tensors[a];
  const TensorSignature& other_tensor = request.signature.tensors[b];
  return input_of(memory) == input_of(other) && memory.output == other.output && tensor.dtype == other_tensor.dtype &&
         tensor.n_bytes() == other_tensor.n_bytes();
}

// Results of a group are computed one after the other, or at once, so no result may overlap another result, or the
// input of another tensor. A tensor may occur several times: see move_repeated().
Status check_apart(const Request& request) {
  const auto refused = [&](std::size_t a, std::size_t b) {
    return Status::invalid_argument(tensor_text(request, std::max(a, b)) + "it shares memory with tensor " +
                                    std::to_string(std::min(a, b)) +
                                    ", which a result would overwrite; give copies of tensors that overlap.");
  };
  const std::vector<Extent> results = extents_of_results(request);
  for (std::size_t i = 1; i < results.size(); ++i) {
    const bool do_overlap = results[i].bytes.data() < results[i - 1].end();
    if (do_overlap && !are_alike(request, results[i - 1].tensor, results[i].tensor)) {
      return refused(results[i - 1].tensor, results[i].tensor);
    }
  }
  for (std::size_t i = 0; i < request.memory.size(); ++i) {
    const TensorMemory& memory = request.memory[i];
    const std::size_t n_bytes = request.signature.tensors[i].n_bytes();
    const std::byte* const input = input_of(memory);
    if (input == memory.output || n_bytes == 0) continue;
    auto result = std::ranges::upper_bound(results, input, std::less<>(), &Extent::end);
    for (; result != results.end() && result->bytes.data() < input + n_bytes; ++result) {
      if (result->bytes.data() != memory.output) return refused(i, result->tensor);
    }
  }
  return Status::ok_status();
}

bool is_reduced_in_groups(const Request& request) {
  const CollectiveInfo& row = info(request.signature.collective);
  return row.is_reduction && row.rows == Rows::kWhole && request.memory.size() > 1;
}

Status check_places(const Request& request) {
  const std::size_t first = first_on_device(request);
  for (std::size_t i = first; i < request.memory.size(); ++i) {
    const Place& place = request.memory[i].place;
    const Place& device = request.memory[first].place;
    if (place.is_host() || place.is_beside(device)) continue;
    return Status::invalid_argument(tensor_text(request, i) + "it lies " + to_string(place) + ", tensor " +
                                    std::to_string(first) + " " + to_string(device) +
                                    "; the tensors of one call lie on one device, or in host memory.");
  }
  return Status::ok_status();
}

bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

}  // namespace

std::size_t first_on_device(const Request& request) {
  const auto is_on_device = [](const TensorMemory& memory) { return !memory.place.is_host(); };
  return static_cast<std::size_t>(std::ranges::find_if(request.memory, is_on_device) - request.memory.begin());
}

std::string to_string(const Shape& shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) out += ", ";
    out += std::to_string(shape[i]);
  }
  return out + "]";
}

std::string call_text(Collective collective, const std::string& name) {
  return std::string(to_string(collective)) + " '" + name + "'";
}

std::string exact_text(double value) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

std::vector<std::int64_t> even_splits(std::int64_t n_rows, int n_ranks) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(n_ranks), n_rows / n_ranks);
  for (std::int64_t rank = 0; rank < n_rows % n_ranks; ++rank) ++rows[static_cast<std::size_t>(rank)];
  return rows;
}

std::int64_t n_rows_of_result(Collective collective, std::int64_t n_rows, int nth, int n_ranks) {
  const Rows rows = info(collective).rows;
  if (rows == Rows::kJoined) return n_rows * n_ranks;
  return rows == Rows::kCut ? even_splits(n_rows, n_ranks)[static_cast<std::size_t>(nth)] : n_rows;
}

std::size_t Signature::n_bytes() const {
  std::size_t total = 0;
  for (const TensorSignature& tensor : tensors) total += tensor.n_bytes();
  return total;
}

namespace {

Status check_root(const Signature& signature, const std::string& name, std::span<const int> ranks) {
  const int root = signature.root;
  if (std::find(ranks.begin(), ranks.end(), root) != ranks.end()) return Status::ok_status();
  const bool is_whole = ranks.front() == 0 && ranks.back() == static_cast<int>(ranks.size()) - 1;
  std::string list;
  for (const int rank : ranks) list += (list.empty() ? "" : ", ") + std::to_string(rank);
  return Status::invalid_argument(
      place_text(signature, name) + "root_rank " + std::to_string(root) +
      (is_whole ? " is not a rank: they go from 0 to " + std::to_string(ranks.back()) + "."
                : " is not in the process set; its ranks, counted in the world, are " + list + "."));
}

}  // namespace

Status check_new_set(const Signature& signature, const std::string& name, std::span<const int> world) {
  const Shape& wanted = signature.arguments;
  const auto where = [&] { return place_text(signature, name); };
  if (wanted.empty()) return Status::invalid_argument(where() + "a process set needs at least one rank.");
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] < 0 || wanted[i] > world.back()) {
      return Status::invalid_argument(where() + "rank " + std::to_string(wanted[i]) + " of " + to_string(wanted) +
                                      " does not exist: they go from 0 to " + std::to_string(world.back()) + ".");
    }
    if (i > 0 && wanted[i] <= wanted[i - 1]) {
      return Status::invalid_argument(where() + "the ranks must ascend and differ, these are " + to_string(wanted) +
                                      ".");
    }
  }
  return Status::ok_status();
}

Status check_old_set(const Signature& signature, const std::string& name, std::span<const int> /*world*/) {
  const Shape& wanted = signature.arguments;
  if (wanted.size() == 1 && std::in_range<std::uint32_t>(wanted.front())) return Status::ok_status();
  return Status::invalid_argument(place_text(signature, name) + "takes the number of one process set, not " +
                                  to_string(wanted) + ".");
}

Status validate(const std::string& name, const Signature& signature, std::span<const int> ranks) {
  const CollectiveInfo& row = info(signature.collective);
  const auto where = [&] { return place_text(signature, name); };
  if (name.empty() || name.size() > kMaxNameBytes) {
    return Status::invalid_argument(std::string(row.name) + ": a name must have 1 to " + std::to_string(kMaxNameBytes) +
                                    " bytes, this one has " + std::to_string(name.size()) + ".");
  }
  if (row.has_tensors == signature.tensors.empty()) {
    return Status::invalid_argument(where() + (row.has_tensors ? "no tensor was given." : "takes no tensor."));
  }
  if (signature.tensors.size() > kMaxTensorsPerRequest) {
    return Status::invalid_argument(where() + "at most " + std::to_string(kMaxTensorsPerRequest) +
                                    " tensors make a group, here are " + std::to_string(signature.tensors.size()) +
                                    ".");
  }
  if (row.has_root) {
    if (Status status = check_root(signature, name, ranks); !status.ok()) return status;
  }
  if (row.check_arguments != nullptr) {
    if (Status status = row.check_arguments(signature, name, ranks); !status.ok()) return status;
  }
  if (Status status = check_sizes(name, signature); !status.ok()) return status;
  for (const TensorSignature& tensor : signature.tensors) {
    if (tensor.shape.size() > kMaxDimensions) {
      return Status::invalid_argument(where() + "a tensor may have at most " + std::to_string(kMaxDimensions) +
                                      " dimensions, this one has " + std::to_string(tensor.shape.size()) + ".");
    }
    if (row.is_along_rows && tensor.shape.empty()) {
      return Status::invalid_argument(where() + "a scalar has no first dimension; reshape it to [1].");
    }
  }
  return row.is_reduction ? check_reduction(name, signature) : Status::ok_status();
}

Status check_sizes(const std::string& name, const Signature& signature) {
  std::uint64_t n_total_bytes = 0;
  for (const TensorSignature& tensor : signature.tensors) {
    if (Status status = check_shape(name, tensor, n_total_bytes); !status.ok()) return status;
  }
  return Status::ok_status();
}

Status validate(const Request& request, std::span<const int> ranks, int rank) {
  const Signature& signature = request.signature;
  if (Status status = validate(request.name, signature, ranks); !status.ok()) return status;
  const auto where = [&] { return place_text(signature, request.name); };
  if (request.memory.size() != signature.tensors.size()) {
    return Status::invalid_argument(where() + "there are " + std::to_string(signature.tensors.size()) +
                                    " tensors but memory for " + std::to_string(request.memory.size()) + ".");
  }
  if (!request.splits.empty() && keeps_rows(request)) {
    return Status::invalid_argument(where() +
                                    "with memory for the result, all ranks send equal parts: give no splits.");
  }
  if (!request.splits.empty() && !info(signature.collective).takes_splits) {
    return Status::invalid_argument(where() + "takes no splits.");
  }
  if (Status status = check_places(request); !status.ok()) return status;
  if (Status status = check_outputs(request, static_cast<int>(ranks.size())); !status.ok()) return status;
  if (Status status = check_memory(request, rank); !status.ok()) return status;
  const bool has_results = is_reduced_in_groups(request) && has_result(signature, rank);
  return has_results ? check_apart(request) : Status::ok_status();
}

std::shared_ptr<std::byte> move_repeated(Request& request) {
  if (!is_reduced_in_groups(request)) return nullptr;
  const std::vector<Extent> results = extents_of_results(request);
  std::vector<Extent> repeated;
  std::size_t n_bytes = 0;
  for (std::size_t i = 1; i < results.size(); ++i) {
    if (results[i].bytes.data() != results[i - 1].bytes.data()) continue;
    repeated.push_back(results[i]);
    n_bytes += results[i].bytes.size();
  }
  if (repeated.empty()) return nullptr;
  const auto apart = std::make_shared_for_overwrite<std::byte[]>(n_bytes);
  std::byte* at = apart.get();
  for (const Extent& each : repeated) {
    TensorMemory& memory = request.memory[each.tensor];
    std::memcpy(at, input_of(memory), each.bytes.size());
    memory.input = memory.output = at;
    at += each.bytes.size();
  }
  return {apart, apart.get()};
}

bool has_result(const Signature& signature, int rank) {
  const CollectiveInfo& row = info(signature.collective);
  return row.receives(row.has_root && signature.root == rank);
}

bool keeps_rows(const Request& request) {
  return request.has_room_for_all && info(request.signature.collective).takes_splits;
}

void settle_splits(Request& request, int size, int rank) {
  const CollectiveInfo& row = info(request.signature.collective);
  if (!row.takes_splits) return;
  if (keeps_rows(request)) {
    request.signature.needs_all = true;
    for (const TensorSignature& tensor : request.signature.tensors) {
      request.signature.arguments.push_back(tensor.shape.front());
    }
  }
  const bool is_sender = !row.has_root || request.signature.root == rank;
  if (is_sender) request.refusal = check_splits(request, size);
  const bool is_empty = !is_sender || !request.refusal.ok();  // tensors of non-root ranks are ignored
  if (is_empty) request.splits.clear();
  request.splits.resize(request.signature.tensors.size());
  for (std::size_t i = 0; i < request.splits.size(); ++i) {
    std::int64_t& n_rows = request.signature.tensors[i].shape.front();
    if (request.splits[i].empty()) request.splits[i] = even_splits(is_empty ? 0 : n_rows, size);
    n_rows = 0;
  }
}

bool can_travel_together(const Signature& a, const Signature& b) {
  return info(a.collective).reduces_for_all && b.collective == a.collective && a.op == b.op &&
         same_bits(a.prescale, b.prescale) && same_bits(a.postscale, b.postscale) && a.is_weighted == b.is_weighted &&
         a.divides_by_all == b.divides_by_all && a.tensors.front().dtype == b.tensors.front().dtype;
}

std::string describe_mismatch(const Signature& a, int rank_a, const Signature& b, int rank_b) {
  const CollectiveInfo& row = info(a.collective);
  if (a.collective != b.collective) {
    return differ("collective", std::string(row.name), rank_a, std::string(to_string(b.collective)), rank_b);
  }
  if (row.is_reduction && a.op != b.op) {
    return differ("reduce op", std::string(to_string(a.op)), rank_a, std::string(to_string(b.op)), rank_b);
  }
  if (row.is_reduction && !(same_bits(a.prescale, b.prescale) && same_bits(a.postscale, b.postscale))) {
    return differ("(prescale_factor, postscale_factor)", quoted_factors(a), rank_a, quoted_factors(b), rank_b);
  }
  if (row.has_root && a.root != b.root) {
    return differ("root_rank", std::to_string(a.root), rank_a, std::to_string(b.root), rank_b);
  }
  if (a.is_weighted != b.is_weighted) {
    return differ("weight", a.is_weighted ? "given" : "none", rank_a, b.is_weighted ? "given" : "none", rank_b);
  }
  if (a.divides_by_all != b.divides_by_all) {
    const auto divisor = [](const Signature& s) { return s.divides_by_all ? "world" : "contributors"; };
    return differ("divisor", divisor(a), rank_a, divisor(b), rank_b);
  }
  if (a.arguments != b.arguments) {
    const auto rows = [&row](const Signature& s) {
      return row.takes_splits && s.arguments.empty() ? "any number" : to_string(s.arguments);
    };
    return differ(row.takes_splits ? "rows, of which each gets as many as it sends" : "ranks", rows(a), rank_a, rows(b),
                  rank_b);
  }
  if (a.needs_all != b.needs_all) {
    const auto needs = [](const Signature& s) { return s.needs_all ? "needs all ranks" : "goes on without some"; };
    return differ("what is to happen while ranks have joined", needs(a), rank_a, needs(b), rank_b);
  }
  if (a.tensors.size() != b.tensors.size()) {
    return differ("number of tensors", std::to_string(a.tensors.size()), rank_a, std::to_string(b.tensors.size()),
                  rank_b);
  }
  return describe_tensor_mismatch(a, rank_a, b, rank_b);
}

}  // namespace ciranda
