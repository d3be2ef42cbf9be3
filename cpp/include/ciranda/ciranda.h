/* ciranda.h: the stable C interface of Ciranda, for all frameworks and languages.
 *
 * A process has one engine: a program links libciranda. A library that is loaded into a process with an engine, such as
 * a framework's binding in Python, does not link libciranda, and calls that engine by the table of ciranda/table.h.
 * Called by programs and by bindings/, which link it or find it by table.h; defined in capi/; its values are used by
 * base/, call/, observe/ and include/.
 *
 * Use: ciranda_init(), then submit requests and wait for their operations, then ciranda_shutdown(). All ranks of a job
 * make the same requests (those with the same name belong together); order matters only for requests without a name.
 *
 * Versions: the interface only grows. Every struct that may grow starts with its size, set by its *_INIT macro, so that
 * a program compiled against an older header runs with a newer library. Each addition raises CIRANDA_ABI_VERSION:
 * compare ciranda_abi_version() with it if the library may be older than the header.
 *
 * Threads: every function may be called from any thread at any time, by the holder of a reference to its context.
 * ciranda_shutdown() and ciranda_context_release() release a reference; ciranda_operation_release() must be the last
 * call with its operation. No function changes the process: no signal handlers, no output except warnings on standard
 * error.
 *
 * Ownership: references to contexts, and operations, belong to the caller, who releases them by the functions just
 * named. Contexts are reference-counted: a request to one that was shut down fails with CIRANDA_ABORTED. Tensor memory
 * stays the caller's and must stay valid, and outputs unread, until the operation is done. All other arguments are
 * copied. Returned strings belong to the library; each function states their lifetime.
 *
 * Failure: no function throws, aborts, or sets a global. Status codes say what the caller can do about an error;
 * messages name the operation, the tensor and the ranks concerned.
 */
#ifndef CIRANDA_CIRANDA_H_
#define CIRANDA_CIRANDA_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define CIRANDA_API __attribute__((visibility("default")))
#else
#define CIRANDA_API
#endif

#define CIRANDA_ABI_VERSION 6

#ifdef __cplusplus
#define CIRANDA_NOEXCEPT noexcept
extern "C" {
#else
#define CIRANDA_NOEXCEPT
#endif

/* An integer of fixed width; the width of a C enum may vary. */
typedef int32_t ciranda_status;
enum {
  CIRANDA_PENDING = -1, /* not an error: the operation is not done yet */
  CIRANDA_OK = 0,
  CIRANDA_INVALID_ARGUMENT = 1, /* the call is invalid: fix the call */
  CIRANDA_MISMATCH = 2,         /* ranks disagree about one tensor: fix the program; the context continues to work */
  CIRANDA_RANKS_LOST = 3,       /* a rank died: shut down and initialise again */
  CIRANDA_TIMEOUT = 4,          /* a rank did not start, call or answer in time */
  CIRANDA_ABORTED = 5,          /* shut down, here or on another rank; or a wait was abandoned */
  CIRANDA_INTERNAL = 6          /* a bug in the library, or the operating system refused a valid request */
};

typedef int32_t ciranda_dtype;
enum {
  CIRANDA_BOOL = 0,
  CIRANDA_UINT8 = 1,
  CIRANDA_UINT16 = 2,
  CIRANDA_UINT32 = 3,
  CIRANDA_UINT64 = 4,
  CIRANDA_INT8 = 5,
  CIRANDA_INT16 = 6,
  CIRANDA_INT32 = 7,
  CIRANDA_INT64 = 8,
  CIRANDA_FLOAT16 = 9,
  CIRANDA_BFLOAT16 = 10,
  CIRANDA_FLOAT32 = 11,
  CIRANDA_FLOAT64 = 12,
  CIRANDA_COMPLEX64 = 13, /* two float32: the real part, then the imaginary part */
  CIRANDA_COMPLEX128 = 14
};

typedef int32_t ciranda_reduce_op;
enum {
  CIRANDA_AVERAGE = 0,
  CIRANDA_SUM = 1,
  CIRANDA_ADASUM = 2, /* floating-point types, CIRANDA_ALLREDUCE: every tensor as a vector of its own */
  CIRANDA_MIN = 3,
  CIRANDA_MAX = 4,
  CIRANDA_PRODUCT = 5,
  CIRANDA_BITWISE_AND = 6, /* integers; without factors */
  CIRANDA_BITWISE_OR = 7,
  CIRANDA_BITWISE_XOR = 8,
  CIRANDA_LOGICAL_AND = 9, /* CIRANDA_BOOL; without factors */
  CIRANDA_LOGICAL_OR = 10,
  CIRANDA_LOGICAL_XOR = 11
};

typedef int32_t ciranda_collective;
enum {
  CIRANDA_ALLREDUCE = 0, /* output = op over all ranks' inputs; the same bits on every rank */
  CIRANDA_ALLGATHER = 1, /* all ranks' inputs after one another along dimension 0, which may differ between ranks */
  CIRANDA_BROADCAST = 2, /* output = the root's input */
  CIRANDA_BARRIER = 3,   /* done when every rank has submitted it; no tensors */
  /* Each rank gets its part of the rows (along dimension 0) of op over all ranks' inputs: equal parts, and the first
   * `rows mod ranks` ranks one row more. The same bits as the rows of an allreduce. */
  CIRANDA_REDUCESCATTER = 4,
  CIRANDA_ALLTOALL = 5, /* the rows of every rank's input are distributed to all ranks: see ciranda_tensor.splits */
  CIRANDA_REDUCE = 6,   /* the root's output = op over all ranks' inputs */
  CIRANDA_GATHER = 7,   /* like CIRANDA_ALLGATHER, but only the root gets the result */
  CIRANDA_SCATTER = 8,  /* the rows of the root's input are distributed to all ranks: see ciranda_tensor.splits */
  CIRANDA_TRANSFER = 9, /* from one rank, the root, to one other; both submit it, in their pair: ciranda_pair(). Not in
                           other process sets. */
  CIRANDA_JOIN = 10,    /* this rank has no more work; done when all ranks have joined, ciranda_operation_value(): the
                           last one */
  CIRANDA_ADD_PROCESS_SET = 11, /* of the ranks in `arguments`; by all ranks; ciranda_operation_value(): its number */
  CIRANDA_REMOVE_PROCESS_SET = 12, /* the one number in `arguments`; by all ranks, unless its ranks have formed it */
  /* Since version 5. A rank's output = op over its own input and those of the ranks before it; an average is divided by
   * their number. The same bits as an allreduce among these ranks. Not by CIRANDA_ADASUM. */
  CIRANDA_SCAN = 14
};

/* The world of ranks that this process belongs to, and its engine. */
typedef struct ciranda_context ciranda_context;
/* A submitted request's handle. */
typedef struct ciranda_operation ciranda_operation;
/* Kept by a caller for a name that it calls repeatedly: ciranda_handle_new(). */
typedef struct ciranda_handle ciranda_handle;

/* ---- the library ------------------------------------------------------------------------------------------------ */

/* The CIRANDA_ABI_VERSION that the library was built with. */
CIRANDA_API uint32_t ciranda_abi_version(void) CIRANDA_NOEXCEPT;
/* The library's version, as in "0.1.0". Lives for ever. */
CIRANDA_API const char* ciranda_version(void) CIRANDA_NOEXCEPT;
/* "OK", "InvalidArgument", "Mismatch", ...; "unknown" for other values. Lives for ever. */
CIRANDA_API const char* ciranda_status_name(ciranda_status status) CIRANDA_NOEXCEPT;
/* "float32", ...; NULL for other values. Lives for ever. */
CIRANDA_API const char* ciranda_dtype_name(ciranda_dtype dtype) CIRANDA_NOEXCEPT;
/* The bytes of one element; 0 for other values. */
CIRANDA_API size_t ciranda_dtype_size(ciranda_dtype dtype) CIRANDA_NOEXCEPT;
/* "sum", ...; NULL for other values. Lives for ever. */
CIRANDA_API const char* ciranda_reduce_op_name(ciranda_reduce_op op) CIRANDA_NOEXCEPT;
/* 1 if tensors of that type can be combined by that op, else 0. */
CIRANDA_API int ciranda_reduce_op_accepts(ciranda_reduce_op op, ciranda_dtype dtype) CIRANDA_NOEXCEPT;

/* ---- joining and leaving ---------------------------------------------------------------------------------------- */

/* One setting, by the name of its environment variable: {"CIRANDA_STALL_WARNING_SECONDS", "5"}. */
typedef struct ciranda_setting {
  const char* name;
  const char* value;
} ciranda_setting;

typedef struct ciranda_options {
  size_t struct_size;
  /* Settings that override the environment's. All settings, and their meaning: docs/guide/settings.md. */
  const ciranda_setting* settings;
  size_t settings_count;
  /* Counts the worlds of the job: every rank passes the same number, and a new one each time it joins again.
   * CIRANDA_EPOCH_AUTO counts the calls of ciranda_init() in this process, which all ranks must make equally often. */
  uint64_t epoch;
} ciranda_options;

#define CIRANDA_EPOCH_AUTO UINT64_MAX
#define CIRANDA_OPTIONS_INIT \
  { sizeof(ciranda_options), NULL, 0, CIRANDA_EPOCH_AUTO }

/* Joins the world and blocks until all ranks have joined. If `options` is NULL, the settings are the environment's, as
 * `ciranda run` sets them; without any, the world has one rank.
 * Refused if another copy of this library in the process has joined a world, and in a program that a rank in the world
 * has started and that has inherited the rank's variables. To detect such programs, a rank in a world of several sets
 * the variable CIRANDA_TAKEN_BY in its environment until it leaves: join and leave while no other thread reads the
 * environment, as setenv() demands.
 * On CIRANDA_OK *context is the new context, the current one. Otherwise *context is NULL, and `message`, if not NULL,
 * holds the reason, cut to message_capacity bytes including the final NUL (512 bytes hold any usual message). */
CIRANDA_API ciranda_status ciranda_init(const ciranda_options* options, ciranda_context** context, char* message,
                                        size_t message_capacity) CIRANDA_NOEXCEPT;

/* Leaves the world for all holders of the context, and releases the caller's reference. Informs the other ranks, and
 * fails every pending and later operation with CIRANDA_ABORTED. Returns when every living rank has been informed, after
 * about two seconds at most, and all callbacks have run, except a callback that calls this function. Operations outlive
 * the context and must still be released. NULL is allowed. Inside a direct callback it does nothing and returns
 * CIRANDA_INVALID_ARGUMENT; otherwise CIRANDA_OK. (Before version 5 it returns nothing, and must not be called from a
 * callback.) */
CIRANDA_API ciranda_status ciranda_shutdown(ciranda_context* context) CIRANDA_NOEXCEPT;

/* The number and the count of ranks: in the world, and on this host (local). Then the number and the count of hosts
 * (cross). -1 if the context is NULL. */
CIRANDA_API int32_t ciranda_rank(const ciranda_context* context) CIRANDA_NOEXCEPT;
CIRANDA_API int32_t ciranda_size(const ciranda_context* context) CIRANDA_NOEXCEPT;
CIRANDA_API int32_t ciranda_local_rank(const ciranda_context* context) CIRANDA_NOEXCEPT;
CIRANDA_API int32_t ciranda_local_size(const ciranda_context* context) CIRANDA_NOEXCEPT;
CIRANDA_API int32_t ciranda_cross_rank(const ciranda_context* context) CIRANDA_NOEXCEPT;
CIRANDA_API int32_t ciranda_cross_size(const ciranda_context* context) CIRANDA_NOEXCEPT;
/* The label of the host of `rank`; NULL if there is no such rank. Lives as long as the context. */
CIRANDA_API const char* ciranda_host_of(const ciranda_context* context, int32_t rank) CIRANDA_NOEXCEPT;

/* ---- process sets ----------------------------------------------------------------------------------------------- */

/* The number of ranks of the process set; 0 if there is no such set. Writes its ranks, ascending, to `ranks`, at most
 * `capacity` of them. Process set 0 has all ranks. */
CIRANDA_API size_t ciranda_process_set_ranks(const ciranda_context* context, uint32_t process_set, int32_t* ranks,
                                             size_t capacity) CIRANDA_NOEXCEPT;
/* The process set of this rank and `peer`, for CIRANDA_TRANSFER. It need not be added. 0 if `peer` is not another
 * rank. */
CIRANDA_API uint32_t ciranda_pair(const ciranda_context* context, int32_t peer) CIRANDA_NOEXCEPT;

/* ---- requests --------------------------------------------------------------------------------------------------- */

/* The type of the memory of a tensor; the numbers are DLPack's. */
enum {
  CIRANDA_HOST = 1,
  CIRANDA_CUDA = 2 /* since version 6 */
};

/* One tensor of a request, contiguous, first dimension outermost. */
typedef struct ciranda_tensor {
  /* This rank's contribution. Read until the operation is done. Broadcast, scatter and transfer read it on the root
   * only. */
  const void* input;
  /* Memory for the result; may be equal to `input`, but must not otherwise overlap it. In a reduction of several
   * tensors it must not overlap the `input` or the `output` of another tensor, unless a request has the same tensor
   * twice. Ignored by a reduce on ranks other than its root, and by a transfer on its root. Also ignored by
   * CIRANDA_ALLGATHER and CIRANDA_ALLTOALL (but see CIRANDA_REQUEST_HAS_ROOM), CIRANDA_GATHER and CIRANDA_SCATTER: the
   * size of their result is not known beforehand, see ciranda_operation_output(). The same function returns the result
   * of a CIRANDA_REDUCESCATTER if all outputs of its request are NULL; otherwise its output may be this rank's own rows
   * of `input`, not equal to `input`, and must not otherwise overlap it. */
  void* output;
  const int64_t* shape; /* ndim numbers; may be NULL if ndim is 0, which is a scalar */
  int32_t ndim;
  ciranda_dtype dtype;
  /* CIRANDA_ALLTOALL on every rank, CIRANDA_SCATTER on the root, else NULL: the number of rows of `input` for each
   * rank, in rank order; as many numbers as ranks, whose sum is shape[0]. They may differ with every call. NULL: equal
   * parts (of a scatter, the first `rows mod ranks` ranks get one row more; of an alltoall, they must be equal).
   * shape[0] may differ between ranks, and is ignored on the ranks that receive a scatter. */
  const int64_t* splits;
  size_t splits_count;
  /* Since version 6. Where the memory is: 0 or CIRANDA_HOST, or CIRANDA_CUDA, the number of the GPU among those of the
   * process, and the stream (a cudaStream_t, or NULL for the legacy default stream) whose earlier work makes the input.
   * From ciranda_submit() until the operation is done, work on any stream must leave the tensor alone; see
   * ciranda_operation_order(). All tensors of a request of one rank are on one device, or in host memory; those of
   * other ranks may be elsewhere. */
  int32_t device_type;
  int32_t device;
  void* stream;
} ciranda_tensor;

typedef void (*ciranda_callback)(const ciranda_operation* operation, void* user_data);

enum {
  /* The caller will call ciranda_wait() or ciranda_poll() for this operation, so the engine may hold it back briefly to
   * fuse it with others. For many small requests that are waited for at the end. */
  CIRANDA_REQUEST_DEFERRABLE = 1,
  /* The caller's next call is ciranda_wait() for this operation. Until then the operation is not reported to other
   * ranks, which saves waking them; if all ranks have made the call, it may be executed at once. For blocking calls. */
  CIRANDA_REQUEST_AWAITED = 2,
  /* For a CIRANDA_AVERAGE without weights: divides by the number of all ranks of the process set, even if some have
   * joined. Without this flag, divides by the number of ranks that take part. All ranks must pass the same. */
  CIRANDA_REQUEST_DIVIDE_BY_ALL = 4,
  /* Since version 4. The caller gives memory for the result of a CIRANDA_ALLGATHER or a CIRANDA_ALLTOALL.
   * Allgather: each `output` has room for the rows of all ranks, if every rank contributes as many rows as this rank.
   * If ranks contribute different numbers of rows, `output` is unchanged and the library allocates the result:
   * ciranda_operation_output() returns it. Ranks may differ in whether they give memory. `input` may be equal to
   * `output`, or be this rank's own rows of it, and must not otherwise overlap it.
   * Alltoall: each `output` is as large as `input`, and may be the same memory. All ranks must give memory and
   * contribute the same number of rows, in equal parts: `splits` is NULL. */
  CIRANDA_REQUEST_HAS_ROOM = 8,
  /* Since version 5. The callback only forwards the result to threads or a queue of the caller's. It runs on the thread
   * that completes the operation, so no other thread is woken. This rank makes no progress until the callback returns.
   * A wait, a ciranda_run() or a ciranda_shutdown() inside the callback returns CIRANDA_INVALID_ARGUMENT, with the
   * reason on standard error; it may submit requests. */
  CIRANDA_REQUEST_DIRECT_CALLBACK = 16,
  /* Since version 5. The request fails, with CIRANDA_MISMATCH, if a rank of its process set has joined. All ranks must
   * pass the same. */
  CIRANDA_REQUEST_NEEDS_ALL = 32
};

typedef struct ciranda_request {
  size_t struct_size;
  size_t tensor_struct_size; /* of one element of `tensors` */
  ciranda_collective collective;
  ciranda_reduce_op op; /* CIRANDA_ALLREDUCE, CIRANDA_REDUCESCATTER, CIRANDA_REDUCE, CIRANDA_SCAN only */
  int32_t root;         /* CIRANDA_BROADCAST, CIRANDA_REDUCE, CIRANDA_GATHER, CIRANDA_SCATTER only */
  uint32_t process_set; /* 0: all ranks */
  /* If there is an op: each input is multiplied by prescale first, and each result by postscale last, after an average
   * was divided by the number of ranks. Every rank must pass the same two. Every step is rounded once, 16-bit floats
   * only after the last. Averages of integers do not wrap, are rounded toward zero, and are scaled and divided in one
   * step. */
  double prescale;
  double postscale;
  uint32_t flags;
  /* Identifies the request across ranks, so it is the same on every rank; use it again in the next step. At most one
   * pending request may have the name. NULL: requests without a name are matched by their order, which must then be the
   * same on every rank. */
  const char* name;
  /* Several make one grouped request: all complete or all fail. */
  const ciranda_tensor* tensors;
  size_t tensors_count;
  /* If not NULL, called once when the operation is done, under no lock, on a callback thread. It may block, wait for
   * other operations, and call ciranda_shutdown(). Other callbacks run meanwhile, on further threads. (Before version
   * 5, and with CIRANDA_REQUEST_DIRECT_CALLBACK, it must neither block nor wait nor shut down.) Its operation is valid
   * during the call only and must not be released. It may run before ciranda_submit() has returned. A C++ exception
   * that leaves it is reported on standard error and not propagated. Callback threads get no signals but those of their
   * own faults, such as SIGSEGV. */
  ciranda_callback callback;
  void* user_data;
  /* Since version 2. The lane of the process set, 0 to 63. Requests on different lanes do not wait for each other. A
   * lane is created on first use. */
  uint32_t lane;
  /* The ranks, ascending, of CIRANDA_ADD_PROCESS_SET, the number of CIRANDA_REMOVE_PROCESS_SET; others: none. */
  const int64_t* arguments;
  size_t arguments_count;
  /* CIRANDA_ALLREDUCE with CIRANDA_AVERAGE only: this rank's weight, in a weighted average of floating-point or complex
   * tensors. Ranks may differ in it, but all or none must have one. NULL: all ranks weigh the same. */
  const double* weight;
  /* Since version 3. Among the requests that are ready on all ranks, requests of a higher priority are executed first.
   * Once a request has had a priority other than 0, the engine starts few requests in advance, so that later ones may
   * overtake. A hint, which must be the same on all ranks. */
  int32_t priority;
  /* Since version 5. The name of the binding, as its user knows it: "ciranda.tensorflow". The prefix of the message of
   * an operation that fails. NULL: none. */
  const char* binding;
  /* Since version 5. Saves the look-up of the name, if the handle was last used for the same name and lane in the same
   * world. One thread at a time uses a handle. NULL: none. */
  ciranda_handle* handle;
} ciranda_request;

#define CIRANDA_REQUEST_INIT                                                                                         \
  {                                                                                                                  \
    sizeof(ciranda_request), sizeof(ciranda_tensor), CIRANDA_ALLREDUCE, CIRANDA_SUM, -1, 0, 1.0, 1.0, 0, NULL, NULL, \
        0, NULL, NULL, 0, NULL, 0, NULL, 0, NULL, NULL                                                               \
  }

/* Submits a request; never blocks.
 * CIRANDA_OK: *operation is its handle, even if the request is invalid: the operation has then already failed, see
 * ciranda_operation_status(). If `operation` is NULL, only the callback reports the end.
 * CIRANDA_INVALID_ARGUMENT: the structs cannot be read (a NULL, a struct size of no known version, a number out of
 * its enum). CIRANDA_INTERNAL: out of memory. In these two cases *operation is NULL, and the callback never runs. */
CIRANDA_API ciranda_status ciranda_submit(ciranda_context* context, const ciranda_request* request,
                                          ciranda_operation** operation) CIRANDA_NOEXCEPT;

/* As ciranda_submit() with CIRANDA_REQUEST_AWAITED and ciranda_wait(), but faster if all ranks repeat a call. Returns
 * the operation's status. *operation is the operation's handle; or NULL if it succeeded, has no value, and its result
 * is in memory that the caller gave. If `operation` is NULL, the value, allocated results and the message are lost.
 * CIRANDA_INVALID_ARGUMENT or CIRANDA_INTERNAL without an operation: as from ciranda_submit(). */
CIRANDA_API ciranda_status ciranda_run(ciranda_context* context, const ciranda_request* request,
                                       ciranda_operation** operation) CIRANDA_NOEXCEPT;

/* Since version 5. Creates a handle for ciranda_request.handle, of no name yet; NULL if out of memory. It may outlive a
 * context, and be used with the next one. */
CIRANDA_API ciranda_handle* ciranda_handle_new(void) CIRANDA_NOEXCEPT;
/* Releases the handle. Pending requests that were made with it continue. NULL is allowed. */
CIRANDA_API void ciranda_handle_release(ciranda_handle* handle) CIRANDA_NOEXCEPT;

/* ---- operations ------------------------------------------------------------------------------------------------- */

/* Blocks until the operation is done, and returns its status; the calling thread may run the progress loop meanwhile. A
 * signal does not end the wait. */
CIRANDA_API ciranda_status ciranda_wait(ciranda_operation* operation) CIRANDA_NOEXCEPT;

/* Like ciranda_wait(), but calls give_up(user_data) when a signal arrives; if the result is not 0, returns
 * CIRANDA_ABORTED while the operation stays pending. */
CIRANDA_API ciranda_status ciranda_wait_interruptible(ciranda_operation* operation, int (*give_up)(void* user_data),
                                                      void* user_data) CIRANDA_NOEXCEPT;

/* 1 if the operation is done, else 0 after an attempt to make progress. Never blocks. */
CIRANDA_API int ciranda_poll(ciranda_operation* operation) CIRANDA_NOEXCEPT;

/* CIRANDA_PENDING until it is done, then its final status. */
CIRANDA_API ciranda_status ciranda_operation_status(const ciranda_operation* operation) CIRANDA_NOEXCEPT;
/* The reason of its failure; "" if it succeeded or is pending. Lives as long as the operation. */
CIRANDA_API const char* ciranda_operation_message(const ciranda_operation* operation) CIRANDA_NOEXCEPT;

/* The part of a result that the library allocated. */
typedef struct ciranda_output {
  const void* data; /* aligned to 64 bytes; lives as long as the operation */
  size_t n_bytes;
  const int64_t* shape; /* ndim numbers; lives as long as the operation */
  int32_t ndim;
} ciranda_output;

/* The number of outputs that the library allocated: one for each tensor, if it allocates them; after those, for an
 * alltoall, one more for each tensor: the number of rows from each rank, as int64. */
CIRANDA_API size_t ciranda_operation_outputs_count(const ciranda_operation* operation) CIRANDA_NOEXCEPT;
/* Output `index`. CIRANDA_PENDING if the operation is not done, CIRANDA_INVALID_ARGUMENT if there is no
 * such output; *output is then all zero. */
CIRANDA_API ciranda_status ciranda_operation_output(const ciranda_operation* operation, size_t index,
                                                    ciranda_output* output) CIRANDA_NOEXCEPT;

/* Since version 6. Where output `index` is, as in ciranda_tensor: its `data` is valid there once it is ordered. Returns
 * as ciranda_operation_output(). */
CIRANDA_API ciranda_status ciranda_operation_output_device(const ciranda_operation* operation, size_t index,
                                                           int32_t* device_type, int32_t* device) CIRANDA_NOEXCEPT;

/* Since version 6. An operation on tensors of a GPU is done when the copies of its results are queued there. Makes the
 * stream wait for them, so that work that it is given afterwards sees the results; may be called for several streams.
 * Does not wait, and does nothing for tensors in host memory. CIRANDA_PENDING if the operation is not done. */
CIRANDA_API ciranda_status ciranda_operation_order(const ciranda_operation* operation, int32_t device_type,
                                                   int32_t device, void* stream) CIRANDA_NOEXCEPT;
/* Since version 6. 1 if the operation is done and no copy of its results is under way any more, else 0. */
CIRANDA_API int ciranda_operation_has_ended(const ciranda_operation* operation) CIRANDA_NOEXCEPT;

/* The number that is the result of some collectives (see their constants); else 0. */
CIRANDA_API int64_t ciranda_operation_value(const ciranda_operation* operation) CIRANDA_NOEXCEPT;

/* Releases the handle, with its outputs and message. A pending operation continues, and its tensors' memory must stay
 * valid until the callback has run or the context is shut down. NULL is allowed. */
CIRANDA_API void ciranda_operation_release(ciranda_operation* operation) CIRANDA_NOEXCEPT;

/* ---- the current context: since version 5 ------------------------------------------------------------------------ */

/* The context of the world that this process joined last, of those that it has not left; NULL without one. The caller
 * gets a reference, to be released by ciranda_context_release(). For bindings, which share a world with others: ask at
 * every call, and cache neither rank nor size, as the calling code may outlive a world. */
CIRANDA_API ciranda_context* ciranda_current(void) CIRANDA_NOEXCEPT;

/* Adds a reference, to be released by ciranda_context_release(). */
CIRANDA_API void ciranda_context_retain(ciranda_context* context) CIRANDA_NOEXCEPT;
/* Releases a reference. Does not leave the world, even if it was the last: that is done by ciranda_shutdown(). NULL is
 * allowed. */
CIRANDA_API void ciranda_context_release(ciranda_context* context) CIRANDA_NOEXCEPT;
/* 1 until it is shut down, then 0. */
CIRANDA_API int ciranda_context_is_open(const ciranda_context* context) CIRANDA_NOEXCEPT;

/* The number of worlds that this copy of the library is in, or about to join. */
CIRANDA_API size_t ciranda_contexts_count(void) CIRANDA_NOEXCEPT;

/* ---- more of operations: since version 5 ------------------------------------------------------------------------- */

/* Like ciranda_wait(), for `seconds` at most: then returns CIRANDA_TIMEOUT, while the operation stays pending
 * (ciranda_operation_status() distinguishes that from an operation that has failed with CIRANDA_TIMEOUT).
 * Not a number, or negative: does not wait. */
CIRANDA_API ciranda_status ciranda_wait_for(ciranda_operation* operation, double seconds) CIRANDA_NOEXCEPT;

/* Returns another handle of the operation, to be released as well; NULL if out of memory, or if `operation` is NULL. A
 * callback can thereby keep outputs and messages, since its own handle ends when the callback returns. */
CIRANDA_API ciranda_operation* ciranda_operation_retain(const ciranda_operation* operation) CIRANDA_NOEXCEPT;

/* Calls `callback` once when the operation is done, even if it is done already, in the same way as
 * ciranda_request.callback. For callers that wait briefly first. The handle may be released meanwhile. Returns
 * CIRANDA_OK. On failure `callback` never runs: CIRANDA_INVALID_ARGUMENT if called in a callback for the callback's own
 * operation, or CIRANDA_INTERNAL if out of memory. */
CIRANDA_API ciranda_status ciranda_operation_call_back(ciranda_operation* operation, ciranda_callback callback,
                                                       void* user_data) CIRANDA_NOEXCEPT;

/* ---- more of process sets: since version 5 ----------------------------------------------------------------------- */

/* Creates a process set. All ranks of the set call this; other ranks need not. The set has lane 0 only. It lasts until
 * the first of its ranks leaves it: each rank submits CIRANDA_REMOVE_PROCESS_SET with the set's number by itself, after
 * its last call in the set; its earlier calls are still executed. `ranks`: ascending, including this rank. `nth`: below
 * 32768, the same on all ranks of the set, and not used before by the lowest of them. On CIRANDA_OK *process_set is the
 * set's number. Otherwise it is 0, and `message` holds the reason, as in ciranda_init(). */
CIRANDA_API ciranda_status ciranda_form_process_set(ciranda_context* context, const int32_t* ranks, size_t ranks_count,
                                                    uint32_t nth, uint32_t* process_set, char* message,
                                                    size_t message_capacity) CIRANDA_NOEXCEPT;

/* ---- shared memory: since version 5 ------------------------------------------------------------------------------ */

/* Allocates zeroed memory for tensors that the ranks of a host combine in place, without a copy. A collective of all
 * ranks, which blocks. `n_bytes` may differ between ranks. If memory cannot be shared (several hosts, no room in
 * /dev/shm), all ranks get private memory: *is_shared, if not NULL, is 1 if it is shared, else 0. The memory outlives
 * the context, until ciranda_free(). On CIRANDA_OK *memory is its address, aligned to 64 bytes. Otherwise *memory is
 * NULL, and `message` holds the reason, as in ciranda_init(). */
CIRANDA_API ciranda_status ciranda_allocate(ciranda_context* context, size_t n_bytes, void** memory, int* is_shared,
                                            char* message, size_t message_capacity) CIRANDA_NOEXCEPT;
/* Frees memory of ciranda_allocate(), on this rank; NULL is allowed. No pending operation may use it. */
CIRANDA_API void ciranda_free(void* memory) CIRANDA_NOEXCEPT;

/* ---- recordings: since version 5 --------------------------------------------------------------------------------- */

/* A recording of this rank's calls, from all threads and languages. The engine records each call in memory of a fixed
 * size, which takes some tens of nanoseconds; the path of a call does not change. The setting CIRANDA_TIMELINE writes
 * the same to a file. */
typedef struct ciranda_recording ciranda_recording;

/* How the ranks agreed on a call, which also determines how it was executed. */
typedef int32_t ciranda_path;
enum {
  CIRANDA_PATH_NONE = 0,     /* no agreement: it failed before */
  CIRANDA_PATH_DIRECT = 1,   /* ciranda_run(), repeated, after all other ranks had contributed */
  CIRANDA_PATH_REPEATED = 2, /* ciranda_run(), repeated; the others contributed while it waited */
  CIRANDA_PATH_MEMORY = 3,   /* a direct round in shared memory */
  CIRANDA_PATH_MESSAGES = 4, /* a direct round by messages */
  CIRANDA_PATH_ALONG = 5,    /* unused: no call takes this path */
  CIRANDA_PATH_PLAN = 6      /* by the log, and a collective algorithm ran */
};

/* A completed call. Times are nanoseconds of CLOCK_MONOTONIC; 0: the call skipped that stage. */
typedef struct ciranda_record {
  const char* name; /* valid until the next call for this recording; a number replaces the end of a very long one */
  ciranda_collective collective;
  ciranda_path path;
  ciranda_status status; /* the final one */
  uint32_t process_set;
  uint32_t lane;
  uint64_t n_bytes;
  int64_t submitted_ns; /* submitted by the caller */
  int64_t taken_ns;     /* taken in by the engine */
  int64_t ready_ns;     /* reported ready, and its data for other ranks written */
  int64_t agreed_ns;    /* this rank knew that all ranks execute it */
  int64_t started_ns;   /* its collective began */
  int64_t done_ns;      /* its result was complete */
} ciranda_record;

/* Starts a recording, which may outlive the context. */
CIRANDA_API ciranda_status ciranda_record_start(ciranda_context* context,
                                                ciranda_recording** recording) CIRANDA_NOEXCEPT;
/* Writes up to `capacity` completed calls, in order of completion, to `records`, and returns their number. Each is read
 * once.
 * `record_struct_size` is sizeof(ciranda_record). By one thread at a time. */
CIRANDA_API size_t ciranda_record_read(ciranda_recording* recording, ciranda_record* records, size_t record_struct_size,
                                       size_t capacity) CIRANDA_NOEXCEPT;
/* The number of calls that were lost before they were read: thousands are kept. */
CIRANDA_API uint64_t ciranda_record_lost(const ciranda_recording* recording) CIRANDA_NOEXCEPT;
/* Ends and frees the recording. NULL is allowed. */
CIRANDA_API void ciranda_record_stop(ciranda_recording* recording) CIRANDA_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif /* CIRANDA_CIRANDA_H_ */
