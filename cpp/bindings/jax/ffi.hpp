// ffi: the arguments of a custom call's handler, and the functions of XLA that a handler may call. These are our own
// declarations of the used structs of XLA's C interface for foreign functions.
//
// XLA's own header gives a handler the version of its jaxlib, and every other jaxlib refuses that handler. The structs
// have only grown since version 0.1 (jaxlib 0.5), so these serve all: a handler reports to XLA the version that XLA
// itself has (handler.hpp). tests/jax/test_internals.py compares all of this with the header of the installed jaxlib.
//
// Used by CollectiveCall, collective.hpp, gpu_collective.hpp, GpuFrame, handler.hpp, look.hpp, Memory, Parameters and
// Reply.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ciranda::jax::ffi {

struct Error;    // made by Api::make_error; the receiver owns it
struct Future;   // ends a call that is pending after its handler has returned
struct Context;  // one execution of one program

// The first field of every struct is its size, as known to the code that made it. The second is a chain of extensions.
struct Extension {
  std::size_t struct_size;
  std::int32_t kind;
  Extension* next;
};
inline constexpr std::int32_t kMetadata = 1;

struct Version {
  std::size_t struct_size;
  Extension* extensions;
  std::int32_t major;
  std::int32_t minor;
};

// XLA's query of a handler at its registration, as an extension.
struct Metadata {
  std::size_t struct_size;
  Version version;
  std::uint32_t traits;
};
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

struct Span {
  const char* data;
  std::size_t size;
};

struct Scalar {
  std::int32_t dtype;
  const void* value;
};

struct Buffer {
  std::size_t struct_size;
  Extension* extensions;
  std::int32_t dtype;
  void* data;
  std::int64_t ndim;
  std::int64_t* shape;
};

struct Buffers {
  std::size_t struct_size;
  Extension* extensions;
  std::int64_t size;
  const std::int32_t* kinds;
  Buffer** items;
};

struct Attributes {
  std::size_t struct_size;
  Extension* extensions;
  std::int64_t size;
  const std::int32_t* kinds;
  Span** names;
  void** items;  // of kind kScalar a Scalar, of kString a Span
};
inline constexpr std::int32_t kScalar = 3;
inline constexpr std::int32_t kString = 4;

struct MakeError {
  std::size_t struct_size;
  Extension* extensions;
  const char* message;
  std::int32_t code;
};
struct MakeFuture {
  std::size_t struct_size;
  Extension* extensions;
  Future* future;
};
struct EndFuture {
  std::size_t struct_size;
  Extension* extensions;
  Future* future;
};
struct FailFuture {
  std::size_t struct_size;
  Extension* extensions;
  Future* future;
  Error* error;
};
struct GetRunId {
  std::size_t struct_size;
  Extension* extensions;
  Context* context;
  std::int64_t run_id;
};

// Of programs for GPUs.
struct GetStream {
  std::size_t struct_size;
  Extension* extensions;
  Context* context;
  void* stream;
};
struct GetDevice {
  std::size_t struct_size;
  Extension* extensions;
  Context* context;
  std::int32_t number;
};

struct Api {
  std::size_t struct_size;
  Extension* extensions;
  Version version;
  const void* internal;
  Error* (*make_error)(MakeError*);
  void* not_used[3];
  Error* (*get_stream)(GetStream*);
  void* not_used_either[8];
  Error* (*make_future)(MakeFuture*);
  Error* (*end_future)(EndFuture*);
  Error* (*fail_future)(FailFuture*);
  Error* (*get_run_id)(GetRunId*);
  Error* (*get_device)(GetDevice*);  // not in the oldest: struct_size tells whether it is there
};

struct Frame {
  std::size_t struct_size;
  Extension* extensions;
  const Api* api;
  Context* context;
  std::int32_t stage;
  Buffers arguments;
  Buffers results;
  Attributes attributes;
  Future* future;  // set by a handler with a pending call: XLA keeps buffers and attributes until it has ended
};

// The codes of errors, and of element types, are those of absl::Status and of XLA's PrimitiveType.
enum Code : std::int32_t {
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kFailedPrecondition = 9,
  kAborted = 10,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14
};

enum Dtype : std::int32_t {
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kC64 = 15,
  kBf16 = 16,
  kC128 = 18
};

static_assert(sizeof(Version) == 24 && sizeof(Metadata) == 40);
static_assert(sizeof(Buffer) == 48 && sizeof(Buffers) == 40 && sizeof(Attributes) == 48);
static_assert(offsetof(Api, make_error) == 48 && offsetof(Api, make_future) == 152);
static_assert(offsetof(Frame, arguments) == 40 && offsetof(Frame, future) == 168);

}  // namespace ciranda::jax::ffi
