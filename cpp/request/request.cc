#include "request/request.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <numeric>

namespace ciranda {
namespace {

// The largest tensor that is not surely a mistake: 2^56 bytes is more than an address space holds.
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

// What the op takes, and what the type can be combined by.
std::string alternatives(ReduceOp op, DataType dtype) {
  const std::string types = names_of(kDataTypes, [&](const DataTypeInfo& row) { return accepts(op, row.dtype); });
  const std::string ops = names_of(kReduceOps, [&](const ReduceOpInfo& row) { return accepts(row.op, dtype); });
  return std::string(to_string(op)) + " takes " + (types.empty() ? "nothing yet" : types) + "; " +
         std::string(to_string(dtype)) + " can be combined by " + ops;
}

Status check_reduction(const std::string& name, const Signature& signature) {
  const std::string where = std::string(to_string(signature.collective)) + " '" + name + "': ";
  const bool is_scaled = signature.prescale != 1.0 || signature.postscale != 1.0;
  for (const TensorSignature& tensor : signature.tensors) {
    const std::string what = std::string(to_string(signature.op)) + " of " + std::string(to_string(tensor.dtype));
    if (!accepts(signature.op, tensor.dtype)) {
      return Status::invalid_argument(where + "there is no " + what + ". " + alternatives(signature.op, tensor.dtype) +
                                      ".");
    }
    if (is_scaled && !accepts_factors(signature.op, tensor.dtype)) {
      return Status::invalid_argument(where + what +
                                      " cannot be scaled; leave prescale_factor and postscale_factor at 1.");
    }
  }
  if (!std::isfinite(signature.prescale) || !std::isfinite(signature.postscale)) {
    return Status::invalid_argument(where + "prescale_factor and postscale_factor must be finite numbers.");
  }
  return Status::ok_status();
}

// The shortest text that only this number has: factors that differ never look the same.
std::string exact_text(double value) {
  std::array<char, 32> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end};
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

std::string describe_tensor_mismatch(const Signature& a, int rank_a, const Signature& b, int rank_b) {
  const CollectiveInfo& row = info(a.collective);
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    const std::string which = a.tensors.size() == 1 ? "" : " of tensor " + std::to_string(i) + " of the group";
    if (a.tensors[i].dtype != b.tensors[i].dtype) {
      return differ("dtype" + which, std::string(to_string(a.tensors[i].dtype)), rank_a,
                    std::string(to_string(b.tensors[i].dtype)), rank_b);
    }
    if (!shapes_agree(a.tensors[i].shape, b.tensors[i].shape, row.first_dim_may_differ)) {
      return differ("shape" + which, to_string(a.tensors[i].shape), rank_a, to_string(b.tensors[i].shape), rank_b) +
             (row.first_dim_may_differ ? " (only the first dimension may differ)" : "");
    }
  }
  return {};
}

bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

}  // namespace

std::string to_string(const Shape& shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) out += ", ";
    out += std::to_string(shape[i]);
  }
  return out + "]";
}

std::uint64_t count_of(const Shape& shape) {
  std::uint64_t count = 1;
  for (const std::int64_t dimension : shape) count *= static_cast<std::uint64_t>(dimension);
  return count;
}

std::size_t Signature::n_bytes() const {
  std::size_t total = 0;
  for (const TensorSignature& tensor : tensors) total += tensor.n_bytes();
  return total;
}

namespace {

Status check_root(const std::string& where, int root, std::span<const int> ranks) {
  if (std::find(ranks.begin(), ranks.end(), root) != ranks.end()) return Status::ok_status();
  const bool is_whole = ranks.front() == 0 && ranks.back() == static_cast<int>(ranks.size()) - 1;
  std::string list;
  for (const int rank : ranks) list += (list.empty() ? "" : ", ") + std::to_string(rank);
  return Status::invalid_argument(
      where + "root_rank " + std::to_string(root) +
      (is_whole ? " is not a rank: they go from 0 to " + std::to_string(ranks.back()) + "."
                : " is not in the process set; its ranks, counted in the world, are " + list + "."));
}

Status check_new_set(const std::string& where, const Shape& wanted, std::span<const int> world) {
  if (wanted.empty()) return Status::invalid_argument(where + "a process set needs at least one rank.");
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] < 0 || wanted[i] > world.back()) {
      return Status::invalid_argument(where + "rank " + std::to_string(wanted[i]) + " of " + to_string(wanted) +
                                      " does not exist: they go from 0 to " + std::to_string(world.back()) + ".");
    }
    if (i > 0 && wanted[i] <= wanted[i - 1]) {
      return Status::invalid_argument(where + "the ranks must ascend and differ, these are " + to_string(wanted) + ".");
    }
  }
  return Status::ok_status();
}

}  // namespace

Status validate(const std::string& name, const Signature& signature, int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return validate(name, signature, ranks);
}

Status validate(const std::string& name, const Signature& signature, std::span<const int> ranks) {
  const CollectiveInfo& row = info(signature.collective);
  const std::string where = std::string(row.name) + " '" + name + "': ";
  if (name.empty() || name.size() > kMaxNameBytes) {
    return Status::invalid_argument(std::string(row.name) + ": a name must have 1 to " + std::to_string(kMaxNameBytes) +
                                    " bytes, this one has " + std::to_string(name.size()) + ".");
  }
  if (row.has_tensors == signature.tensors.empty()) {
    return Status::invalid_argument(where + (row.has_tensors ? "no tensor was given." : "takes no tensor."));
  }
  if (signature.tensors.size() > kMaxTensorsPerRequest) {
    return Status::invalid_argument(where + "at most " + std::to_string(kMaxTensorsPerRequest) +
                                    " tensors make a group, here are " + std::to_string(signature.tensors.size()) +
                                    ".");
  }
  if (row.has_root) {
    if (Status status = check_root(where, signature.root, ranks); !status.ok()) return status;
  }
  if (signature.collective == Collective::kAddProcessSet) {
    if (Status status = check_new_set(where, signature.arguments, ranks); !status.ok()) return status;
  }
  std::uint64_t n_total_bytes = 0;
  for (const TensorSignature& tensor : signature.tensors) {
    if (Status status = check_shape(name, tensor, n_total_bytes); !status.ok()) return status;
    if (tensor.shape.size() > kMaxDimensions) {
      return Status::invalid_argument(where + "a tensor may have at most " + std::to_string(kMaxDimensions) +
                                      " dimensions, this one has " + std::to_string(tensor.shape.size()) + ".");
    }
    if (row.first_dim_may_differ && tensor.shape.empty()) {
      return Status::invalid_argument(where + "a scalar has no first dimension to join along; reshape it to [1].");
    }
  }
  return row.is_reduction ? check_reduction(name, signature) : Status::ok_status();
}

Status validate(const Request& request, std::span<const int> ranks) {
  const Signature& signature = request.signature;
  if (Status status = validate(request.name, signature, ranks); !status.ok()) return status;
  if (request.memory.size() != signature.tensors.size()) {
    return Status::invalid_argument(std::string(to_string(signature.collective)) + " '" + request.name +
                                    "': there are " + std::to_string(signature.tensors.size()) +
                                    " tensors but memory for " + std::to_string(request.memory.size()) + ".");
  }
  return Status::ok_status();
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
  if (a.arguments != b.arguments) {
    return differ("ranks", to_string(a.arguments), rank_a, to_string(b.arguments), rank_b);
  }
  if (a.tensors.size() != b.tensors.size()) {
    return differ("number of tensors", std::to_string(a.tensors.size()), rank_a, std::to_string(b.tensors.size()),
                  rank_b);
  }
  return describe_tensor_mismatch(a, rank_a, b, rank_b);
}

}  // namespace ciranda
