/* What a binding in C does: gets the table of the engine that is there, and submits to the current world. */
#include <ciranda/table.h>

CIRANDA_DEFINE_TABLE

__attribute__((visibility("default"))) int use(const ciranda_table* table, char* message, size_t capacity) {
  return ciranda_use_table(table, message, capacity);
}

static ciranda_context* world;

__attribute__((visibility("default"))) int join(char* message, size_t capacity) {
  return ciranda_init(NULL, &world, message, capacity);
}

__attribute__((visibility("default"))) void leave(void) { ciranda_shutdown(world); }

__attribute__((visibility("default"))) void leave_current(void) { ciranda_shutdown(ciranda_current()); }

/* -1 outside a world. */
__attribute__((visibility("default"))) int size_now(void) {
  ciranda_context* now = ciranda_current();
  const int size = ciranda_size(now);
  ciranda_context_release(now);
  return size;
}

/* The sum over all ranks, in place; how it ended, and why. */
__attribute__((visibility("default"))) int sum(const char* name, float* values, int64_t count, char* message,
                                               size_t capacity) {
  const ciranda_tensor tensor = {values, values, &count, 1, CIRANDA_FLOAT32, NULL, 0, 0, 0, NULL};
  ciranda_request request = CIRANDA_REQUEST_INIT;
  ciranda_operation* operation = NULL;
  ciranda_context* now = ciranda_current();
  ciranda_status status;
  request.name = name;
  request.tensors = &tensor;
  request.tensors_count = 1;
  status = ciranda_submit(now, &request, &operation);
  if (operation != NULL) {
    status = ciranda_wait(operation);
    snprintf(message, capacity, "%s", ciranda_operation_message(operation));
    ciranda_operation_release(operation);
  }
  ciranda_context_release(now);
  return status;
}
