#include "fakes/twins.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "base/checksum.hpp"
#include "fakes/on_host.hpp"
// The primitives come first: the kernels use them.
#include "backend/cuda/kernels/kernels.inc"

namespace ciranda::cuda {

void require_aligned(const void* address, std::size_t n_bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % n_bytes == 0) return;
  std::fprintf(stderr, "a kernel accesses %zu bytes at the misaligned address %p\n", n_bytes, address);
  std::abort();
}

}  // namespace ciranda::cuda

namespace ciranda::fakes {
namespace {

// NOLINTNEXTLINE(google-build-using-namespace): the list of kernels names what is in it
using namespace ciranda::cuda;

std::byte* (*translation)(const void*) = nullptr;

template <class T>
T* translated(T* address) {
  if (translation == nullptr) return address;
  return reinterpret_cast<T*>(translation(address));
}

// Arguments with addresses that the host can access. They are made of the launch's, and outlive the run.
struct TranslatedPieces {
  explicit TranslatedPieces(const Pieces& pieces) : from_launch(pieces) {
    const Piece* first = translated(pieces.first);
    own.assign(first, first + pieces.count);
    for (Piece& piece : own) {
      piece.from = translated(piece.from);
      piece.to = translated(piece.to);
    }
  }
  Pieces pieces() const { return {own.data(), from_launch.count, from_launch.n_chunks}; }

  Pieces from_launch;
  std::vector<Piece> own;
};

template <class Arguments>
struct Translated {
  explicit Translated(const Arguments& launched) : pieces(launched.pieces), arguments(launched) {
    arguments.pieces = pieces.pieces();
  }
  TranslatedPieces pieces;
  Arguments arguments;
};

template <>
struct Translated<ReduceArguments> {
  explicit Translated(const ReduceArguments& launched) : arguments(launched) {
    for (std::size_t k = 0; k < arguments.n_inputs; ++k) arguments.inputs[k] = translated(arguments.inputs[k]);
    arguments.out = translated(arguments.out);
  }
  ReduceArguments arguments;
};

static_assert(cuda::kChecksumBlockBytes == ciranda::kChecksumBlockBytes);

template <class Arguments>
const Arguments& arguments_of(void** arguments) {
  return *static_cast<const Arguments*>(arguments[0]);
}

template <class Arguments, void (*kKernel)(const Arguments&, const Thread&)>
void run(void** launched, unsigned n_blocks, unsigned n_threads) {
  const Translated<Arguments> translated(arguments_of<Arguments>(launched));
  for (unsigned block = 0; block < n_blocks; ++block) {
    for (unsigned index = 0; index < n_threads; ++index) {
      kKernel(translated.arguments, {block, n_blocks, index, n_threads});
    }
  }
}

class Touches {
 public:
  explicit Touches(std::vector<Touch>& touched) : touched_(touched) {}

  void add(const void* address, std::size_t n_bytes, bool writes) {
    if (n_bytes > 0) touched_.push_back({static_cast<const std::byte*>(address), n_bytes, writes});
  }

  // bytes_to: of what is written for a range, 0 if nothing is.
  template <class BytesTo>
  void add_pieces(const Pieces& pieces, const BytesTo& bytes_to) {
    add(pieces.first, pieces.count * sizeof(Piece), false);
    const Piece* first = translated(pieces.first);
    for (std::size_t i = 0; i < pieces.count; ++i) {
      add(first[i].from, first[i].n_bytes, false);
      add(first[i].to, bytes_to(first[i].n_bytes), true);
    }
  }

  void add_launch(const CopyArguments& arguments) { add_pieces(arguments.pieces, all); }
  void add_launch(const ChecksumArguments& arguments) {
    add_pieces(arguments.pieces, [](std::size_t n_bytes) { return n_bytes == 0 ? 0 : sizeof(std::uint64_t); });
  }
  void add_launch(const ReduceArguments& arguments) {
    for (std::size_t k = 0; k < arguments.n_inputs; ++k) add(arguments.inputs[k], arguments.n_bytes, false);
    add(arguments.out, arguments.n_bytes, true);
  }

 private:
  static std::size_t all(std::size_t n_bytes) { return n_bytes; }

  std::vector<Touch>& touched_;
};

template <class Arguments>
void touches(void** arguments, std::vector<Touch>& touched) {
  Touches(touched).add_launch(arguments_of<Arguments>(arguments));
}

template <class Arguments>
constexpr std::array<std::size_t, 1> kArgumentBytes{sizeof(Arguments)};

constexpr std::array kTwins{
#define KERNEL(name, Arguments, ...) \
  Twin{#name, run<Arguments, __VA_ARGS__>, touches<Arguments>, kArgumentBytes<Arguments>},
#include "backend/cuda/kernels/list.inc"
#undef KERNEL
};

}  // namespace

const Twin* find_twin(std::string_view name) {
  const auto found = std::find_if(kTwins.begin(), kTwins.end(), [&](const Twin& twin) { return twin.name == name; });
  return found == kTwins.end() ? nullptr : &*found;
}

void set_translation(std::byte* (*in_kernel)(const void* address)) { translation = in_kernel; }

}  // namespace ciranda::fakes
