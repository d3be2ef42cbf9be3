// TensorReader: the engine's description of a Python tensor: address, place, element type, shape.
//
// Understands, in this order: types with a DLPack exchange table (torch; about 0.1 us), types with the CUDA array
// interface (CuPy), TensorDescription, and whatever nanobind can import in host memory (NumPy and others by DLPack or
// the buffer protocol).
// Threads: every method needs the GIL. Failure: throws InvalidArgumentError.
//
// Called by Session, which owns it, CallBuilder, EngineHandle and module.cc.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bindings/python/tensor_library.hpp"
#include "call/request.hpp"

namespace ciranda::python {

namespace nb = nanobind;

// A tensor described by its fields, if DLPack cannot carry it (NumPy arrays of bfloat16, torch before its exchange
// table, arrays of CuPy).
struct TensorDescription {
  std::uintptr_t address = 0;
  Shape shape;
  DataType dtype = DataType::kFloat32;
  nb::object owner;      // keeps the memory
  nb::object library;    // TensorLibrary::object; only for a tensor on a GPU
  std::int32_t gpu = 0;  // its number; only with a library
};

struct TensorView {
  std::byte* address = nullptr;  // of the first element; null for an empty tensor
  Place place = {};              // its queue is the library's current stream
  TensorLibrary library = {};
};

enum class Access : std::uint8_t { kRead, kWrite };

class TensorReader {
 public:
  // Fills `signature`, reusing its storage. The memory is the tensor's: keep the tensor. May run Python code, which may
  // call this again: `signature` must be the caller's own.
  TensorView read(nb::handle tensor, Access access, TensorSignature& signature);

 private:
  struct Interfaces {
    const dlpack::ExchangeTable* table = nullptr;
    bool is_cuda_array = false;  // by the CUDA array interface; no table
  };
  struct KnownType {
    nb::object type;  // held, so that the address stays its own
    Interfaces interfaces;
  };

  Interfaces interfaces_of(nb::handle tensor);

  std::vector<KnownType> known_types_;
};

void bind_tensor_description(nb::module_& m);

}  // namespace ciranda::python
