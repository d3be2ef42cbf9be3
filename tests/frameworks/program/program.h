/* program.h: what the programs in C and C++ of the conformance suite do for it, which calls them through ctypes. Each
 * is a shared library that is loaded into a Python process and uses that process's engine, as the native part of a
 * framework's binding does.
 *
 * Threads: any. Ownership: a call belongs to the caller until suite_release(); its tensors must be valid until it has
 * ended. */
#ifndef SUITE_PROGRAM_H_
#define SUITE_PROGRAM_H_

/* Compiled with -DCIRANDA_USE_TABLE. */
#include <ciranda/table.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct suite_call suite_call;

typedef struct suite_request {
  ciranda_collective collective;
  ciranda_reduce_op op;
  int32_t root;
  uint32_t process_set;
  uint32_t flags;
  double prescale;
  double postscale;
  const char* name;
  const ciranda_tensor* tensors;
  size_t tensors_count;
} suite_request;

/* NULL, or why the engine's functions cannot be used. Comes first. */
const char* suite_start(const ciranda_table* table);
suite_call* suite_submit(const suite_request* request);
/* Blocks until the call has ended; how. */
ciranda_status suite_wait(suite_call* call);
/* Once it has ended: why it failed, its outputs, its number. */
const char* suite_message(const suite_call* call);
size_t suite_outputs_count(const suite_call* call);
ciranda_output suite_output(const suite_call* call, size_t index);
int64_t suite_value(const suite_call* call);
void suite_release(suite_call* call);
/* How many calls hold anything. */
int64_t suite_live(void);

#ifdef __cplusplus
}
#endif

#endif /* SUITE_PROGRAM_H_ */
