/* The program in plain C: half of its calls wait for the operation, the other half for their callback. */
#include "program.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

CIRANDA_DEFINE_TABLE

struct suite_call {
  ciranda_operation* operation; /* NULL if the engine never had the request */
  ciranda_status status;        /* then */
  int waits_for_callback;
  pthread_mutex_t lock;
  pthread_cond_t ended;
  int has_ended;
};

static atomic_llong live;
static atomic_uint n_submitted;

const char* suite_start(const ciranda_table* table) {
  static char message[512];
  return ciranda_use_table(table, message, sizeof message) == CIRANDA_OK ? NULL : message;
}

static void on_end(const ciranda_operation* operation, void* user_data) {
  suite_call* call = user_data;
  (void)operation;
  pthread_mutex_lock(&call->lock);
  call->has_ended = 1;
  pthread_cond_signal(&call->ended);
  pthread_mutex_unlock(&call->lock);
}

suite_call* suite_submit(const suite_request* given) {
  suite_call* call = calloc(1, sizeof *call);
  ciranda_context* context = ciranda_current();
  ciranda_request request = CIRANDA_REQUEST_INIT;
  if (call == NULL) abort();
  pthread_mutex_init(&call->lock, NULL);
  pthread_cond_init(&call->ended, NULL);
  call->waits_for_callback = (int)(atomic_fetch_add(&n_submitted, 1) % 2);
  atomic_fetch_add(&live, 1);
  request.collective = given->collective;
  request.op = given->op;
  request.root = given->root;
  request.process_set = given->process_set;
  request.flags |= given->flags;
  request.prescale = given->prescale;
  request.postscale = given->postscale;
  request.name = given->name;
  request.tensors = given->tensors;
  request.tensors_count = given->tensors_count;
  if (call->waits_for_callback) {
    request.callback = on_end;
    request.user_data = call;
  } else {
    request.flags |= CIRANDA_REQUEST_DEFERRABLE;
  }
  call->status = context == NULL ? CIRANDA_INVALID_ARGUMENT : ciranda_submit(context, &request, &call->operation);
  ciranda_context_release(context);
  return call;
}

ciranda_status suite_wait(suite_call* call) {
  if (call->operation == NULL) return call->status;
  if (!call->waits_for_callback) return ciranda_wait(call->operation);
  pthread_mutex_lock(&call->lock);
  while (!call->has_ended) pthread_cond_wait(&call->ended, &call->lock);
  pthread_mutex_unlock(&call->lock);
  return ciranda_operation_status(call->operation);
}

const char* suite_message(const suite_call* call) {
  if (call->operation != NULL) return ciranda_operation_message(call->operation);
  return call->status == CIRANDA_OK ? "" : "no init() before, or a request that cannot be read";
}

size_t suite_outputs_count(const suite_call* call) {
  return call->operation == NULL ? 0 : ciranda_operation_outputs_count(call->operation);
}

ciranda_output suite_output(const suite_call* call, size_t index) {
  ciranda_output output;
  (void)ciranda_operation_output(call->operation, index, &output);
  return output;
}

int64_t suite_value(const suite_call* call) { return ciranda_operation_value(call->operation); }

void suite_release(suite_call* call) {
  ciranda_operation_release(call->operation);
  pthread_cond_destroy(&call->ended);
  pthread_mutex_destroy(&call->lock);
  free(call);
  atomic_fetch_sub(&live, 1);
}

int64_t suite_live(void) { return atomic_load(&live); }
